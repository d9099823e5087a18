"""What the rules find in a file, with its place, sorted and answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dp2ddp.codemod.acceptance import AcceptOption, Comments
from dp2ddp.codemod.edits import Hazard, Note, TextEdit
from dp2ddp.codemod.gone import gone_with
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plan import Plan, Planned, answered, is_lost, place
from dp2ddp.codemod.small.own_mode import OwnMode
from dp2ddp.codemod.small.rule import Change, Finding, Rule

Edits = list[tuple[Planned, tuple[str, ...]]]  # with the helpers that each needs


@dataclass(frozen=True)
class FilePlan:
    """The changes of a file, the helpers that they need, and what its owner must answer or should know."""

    module: Module
    plan: Plan
    helpers: frozenset[str]

    @property
    def edits(self) -> list[TextEdit]:
        return self.plan.text_edits()


def plan_file(module: Module, rules: Sequence[Rule], accept: Sequence[AcceptOption]) -> FilePlan:
    """Look at a file by all rules."""
    comments, entry = Comments(module), module.program.entry
    shown = None if module is entry else module.shown
    edits: Edits = []
    answers: list[Planned] = []
    for code, finding in _found_by(rules, module):
        if isinstance(finding, Change):
            planned = place(module, code, finding.edit, shown)
            if not comments.ignoring(code, planned.line):
                edits.append((planned, finding.helpers))
        else:
            planned = place(module, code, finding, shown)
            answers.append(answered(planned, comments, accept, entry.source.name))
    edits = _without_lost(module, edits)
    hazards = [each for each in answers if isinstance(each.finding, Hazard)]
    plan = Plan(
        strategy=None,
        edits=tuple(sorted((each for each, _ in edits), key=lambda each: (each.line, each.column))),
        hazards=tuple(each for each in hazards if not each.acceptance),
        accepted=tuple(each for each in hazards if each.acceptance),
        notes=tuple(each for each in answers if isinstance(each.finding, Note)),
        imports=(),
        lifts=(),
    )
    return FilePlan(module, plan, frozenset(name for _, helpers in edits for name in helpers))


def _found_by(rules: Sequence[Rule], module: Module) -> Iterator[tuple[str, Finding]]:
    """What rules find, with their codes; but for what stands in a distributed mode of the script's own."""
    own_mode = OwnMode(module)
    for rule in rules:
        for finding in rule.look(module):
            node = finding.edit.node if isinstance(finding, Change) else finding.node
            if rule.everywhere or not own_mode.holds(node):
                yield rule.code, finding


def _without_lost(module: Module, edits: Edits) -> Edits:
    """Without edits of text that another edit takes away."""
    positions = module.positions
    gone = [(each, text) for each, _ in edits if (text := gone_with(each.finding, positions))]
    return [(each, helpers) for each, helpers in edits if not is_lost(positions, each, gone)]
