"""What a rule is: one file with a code, a page (its docstring), examples (its tests) and a local look at the model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dp2ddp.codemod.edits import Hazard, Note, PassTo, Replace, TextEdit
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import DescribedRule, UnknownRuleError, rules_in

RULES = "dp2ddp.codemod.small.rules"


@dataclass(frozen=True)
class Change:
    """An edit, with the helpers that it needs."""

    edit: TextEdit
    helpers: tuple[str, ...] = ()


Finding = Change | Hazard | Note


class Rule(DescribedRule):
    """A rule of the conversion. Subclasses are final: one a file, named after what is found."""

    nodes: ClassVar[tuple[str, ...]] = ()  # of libcst, that it changes
    everywhere: ClassVar[bool] = False  # also where nothing runs

    def look(self, module: Module) -> Iterator[Finding]:
        """Edits, hazards and notes for one file; reads the model, changes nothing."""
        raise NotImplementedError

    @classmethod
    def about(cls) -> str:
        return "Nodes of libcst: " + ", ".join(f"`{name}`" for name in cls.nodes)


@lru_cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code: a rule exists by being a file."""
    return tuple(rules_in(RULES, Rule))


def pick_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> list[Rule]:
    """The rules that the user wants; codes may be families (`DDP5`)."""
    rules = all_rules()
    for code in (*select, *ignore):
        if not any(rule.code.startswith(code) for rule in rules):
            raise UnknownRuleError(code, [rule.code for rule in rules])
    selected = [rule for rule in rules if not select or rule.code.startswith(select)]
    return [rule for rule in selected if not ignore or not rule.code.startswith(ignore)]


def rename(node: ast.AST, helper: str, because: str) -> Change:
    """What is named here is the helper from now on."""
    return Change(Replace(node, helper, because), (helper,))


def call_by(node: ast.Call, helper: str, because: str) -> Change:
    """`f(x)` becomes `helper(f, x)`."""
    return Change(PassTo(node, helper, because), (helper,))
