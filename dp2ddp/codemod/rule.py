"""What a rule is: one file with a code, a page (its docstring), examples (its tests) and a plan."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeVar

from dp2ddp.codemod.choices import EXACT, FULL, IDIOMATIC
from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.errors import ConversionError, did_you_mean


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


class DescribedRule:
    """A code, a name, a page (the docstring) and examples (its tests): what every rule has."""

    code: ClassVar[str]
    name: ClassVar[str]
    examples: ClassVar[tuple[Example, ...]]
    flagged_as: ClassVar[str]  # what its page calls the finding of a `Flags`

    @classmethod
    def summary(cls) -> str:
        return cls.page().partition("\n")[0]

    @classmethod
    def page(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def about(cls) -> str:
        """The line of its page between the title and the text."""
        raise NotImplementedError


class Rule(DescribedRule):
    """A rule of the conversion. Subclasses are final: one a file, named after what is found."""

    nodes: ClassVar[tuple[str, ...]]  # of libcst: what it changes or, if nothing, what it remarks on
    everywhere: ClassVar[bool] = False  # also in what nothing can reach
    tier: ClassVar[str] = FULL  # of the helpers in its examples
    flagged_as = "A hazard"

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        """Edits, hazards and notes for one script; reads facts, changes nothing."""
        raise NotImplementedError

    @classmethod
    def about(cls) -> str:
        return "Nodes of libcst: " + ", ".join(f"`{name}`" for name in cls.nodes)


AnyRule = TypeVar("AnyRule", bound=DescribedRule)


@dataclass(frozen=True)
class Style:
    """What a script may be converted to."""

    package: str  # that holds its rules
    borrowed: tuple[str, ...] = ()  # rules of the exact style that it uses as well
    whole: bool = False  # an open hazard anywhere: nothing is written


STYLES = {
    EXACT: Style("rules"),
    IDIOMATIC: Style("idiomatic", ("DDP102", "DDP104", "DDP911"), whole=True),
}


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is, of all styles, by code: a rule exists by being a file in rules/ or idiomatic/."""
    rules = {rule.code: rule for style in STYLES for rule in rules_of_style(style)}
    return tuple(rules[code] for code in sorted(rules))


@lru_cache
def rules_of_style(style: str) -> tuple[Rule, ...]:
    """The rules that a style is made of, by code."""
    chosen = STYLES[style]
    borrowed = (
        [rule for rule in rules_of_style("exact") if rule.code in chosen.borrowed] if chosen.borrowed else []
    )
    return tuple(
        sorted((*rules_in(f"dp2ddp.codemod.{chosen.package}", Rule), *borrowed), key=lambda rule: rule.code)
    )


def rules_in(package: str, kind: type[AnyRule]) -> Iterator[AnyRule]:
    """The rules of a kind that a package has: one in each of its files ddp*.py."""
    members = importlib.import_module(package)
    names = sorted(
        module.name for module in pkgutil.iter_modules(members.__path__) if module.name.startswith("ddp")
    )
    for name in names:
        yield _rule_of(vars(importlib.import_module(f"{package}.{name}")), kind)


def _rule_of(members: dict[str, object], kind: type[AnyRule]) -> AnyRule:
    (rule_class,) = (
        member
        for member in members.values()
        if isinstance(member, type) and issubclass(member, kind) and member.__module__ == members["__name__"]
    )
    return rule_class()


def pick_rules(select: tuple[str, ...], ignore: tuple[str, ...], style: str = "exact") -> tuple[Rule, ...]:
    """The rules of a style that the user wants; codes may be families (`DDP5`)."""
    rules = rules_of_style(style)
    for code in (*select, *ignore):
        if not any(rule.code.startswith(code) for rule in rules):
            raise UnknownRuleError(code, [rule.code for rule in rules])
    return tuple(
        rule
        for rule in rules
        if (not select or rule.code.startswith(select)) and not (ignore and rule.code.startswith(ignore))
    )


class UnknownRuleError(ConversionError):
    """A rule code that no rule has."""

    def __init__(self, code: str, known: Sequence[str]) -> None:
        super().__init__(f"{code}: no such rule{did_you_mean(code, known)}; `dp2ddp rules` lists them")
        self.code = code


def code_of(example: str) -> str:
    """The text of an example as a script."""
    import textwrap  # for pages of rules and their tests

    return textwrap.dedent(example).strip("\n") + "\n"
