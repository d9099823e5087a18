"""What a rule of the check is: a page, examples, and a question that it asks of one script; and all that there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import (
    DescribedRule,
    Flags,
    Untouched,
    all_rules,
    diff,
    flags,
    rules_in,
)
from dp2ddp.review import rules
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level, PlacedProblem

__all__ = ["CheckRule", "CheckWarning", "DDPScript", "Found", "corrected"]

# What the scripts of examples begin with.
ON_RANKS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
"""


@dataclass(frozen=True, eq=False)
class Problem:
    """Something that is wrong: what stands there, and what to do about it."""

    node: ast.AST
    message: str
    advice: str

    def placed(self, script: Module, code: str, level: Level) -> PlacedProblem:
        """With its place as a person looks for it."""
        source, positions = script.source, script.positions
        line = getattr(self.node, "lineno", 1)
        start = positions.line_starts[line - 1]
        place = source.place(line)
        return PlacedProblem(
            file=source.name,
            line=place.line,
            column=positions.span(self.node).start - start + 1,
            cell=place.cell,
            code=code,
            level=level,
            message=self.message,
            advice=self.advice,
            text=positions.text[start : positions.line_end(line)].strip(),
        )


Found = Iterator[Problem]


class CheckRule(DescribedRule):
    """A rule of the check. Subclasses are final: in a file of their own, or in one of all rules on a subject.

    Its page says what it does, why, when it is silent and what a fix risks, and where people met it.
    """

    about = "`dp2ddp check` finds it."
    flagged_as = "Found"
    level: ClassVar[Level] = Level.ERROR
    message: ClassVar[str] = "{what}"  # what is said of each place, with {holes} for words
    advice: ClassVar[str] = "{how}"
    start: ClassVar[str] = ON_RANKS  # of the scripts of its examples

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.examples = tuple(
            replace(example, before=cls.start + example.before) for example in getattr(cls, "examples", ())
        )

    def find(self, script: DDPScript) -> Found:
        """The problems of one script, each proven from its text."""
        raise NotImplementedError

    def problem(self, node: ast.AST, **words: object) -> Problem:
        return Problem(node, self.message.format(**words), self.advice.format(**words))


class CheckWarning(CheckRule):
    """A rule of what fails nowhere: it costs time, or gives numbers that mislead."""

    level = Level.WARNING


def corrected(text: str) -> tuple[Flags, Untouched]:
    """What is wrong, and what to write, as a diff; the first line is what the problem's text holds."""
    found = flags(text)
    both = diff(found.before)
    return replace(found, before=both.before), Untouched(both.after)


def described_rules() -> list[DescribedRule]:
    """The rules of the conversion and of the check, by code."""
    return sorted((*all_rules(), *check_rules()), key=lambda rule: rule.code)


@lru_cache
def check_rules() -> tuple[CheckRule, ...]:
    """Every rule of the check, by code."""
    return tuple(rules_in(rules.__name__, CheckRule))
