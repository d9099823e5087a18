"""What a rule is: one file with a code, a page (its docstring), examples (its tests) and a plan."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.errors import ConversionError


@dataclass(frozen=True)
class Rewrites:
    """The rule turns `before` into `after` (without imports, lifted helpers and the join)."""

    before: str
    after: str


@dataclass(frozen=True)
class Flags:
    """The rule reports a hazard whose text holds `message`."""

    before: str
    message: str


@dataclass(frozen=True)
class Notes:
    """The rule changes nothing and leaves a note whose text holds `message`."""

    before: str
    message: str


@dataclass(frozen=True)
class Untouched:
    """The rule has nothing to say."""

    before: str


Example = Rewrites | Flags | Notes | Untouched


class Rule:
    """Subclasses are final: one a file, named after what is found."""

    code: ClassVar[str]
    name: ClassVar[str]
    examples: ClassVar[tuple[Example, ...]]
    everywhere: ClassVar[bool] = False  # also in what nothing can reach

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        """Edits, hazards and notes for one script; reads facts, changes nothing."""
        raise NotImplementedError

    @classmethod
    def summary(cls) -> str:
        return cls.page().partition("\n")[0]

    @classmethod
    def page(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "")


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is, by code: a rule exists by being a file in rules/."""
    from dp2ddp.codemod import rules as package

    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [
        importlib.import_module(f"{package.__name__}.{name}") for name in names if name.startswith("ddp")
    ]
    return tuple(_rule_of(vars(module)) for module in modules)


def _rule_of(members: dict[str, object]) -> Rule:
    (found,) = (
        one
        for one in members.values()
        if isinstance(one, type) and issubclass(one, Rule) and one.__module__ == members["__name__"]
    )
    rule: Rule = found()
    return rule


def pick_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules that the user wants; codes may be families (`DDP5`)."""
    rules = all_rules()
    for code in (*select, *ignore):
        if not any(rule.code.startswith(code) for rule in rules):
            raise UnknownRuleError(code)
    return tuple(
        rule
        for rule in rules
        if (not select or rule.code.startswith(select)) and not (ignore and rule.code.startswith(ignore))
    )


class UnknownRuleError(ConversionError):
    """A rule code that no rule has."""

    def __init__(self, code: str) -> None:
        super().__init__(f"{code}: no such rule; `dp2ddp rules` lists them")
        self.code = code


def code_of(example: str) -> str:
    """The text of an example as a script."""
    return textwrap.dedent(example).strip("\n") + "\n"
