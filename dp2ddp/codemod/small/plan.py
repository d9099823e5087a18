"""What the rules find in a file, with its place, sorted and answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dp2ddp.codemod.acceptance import Acceptance, AcceptOption, Comments
from dp2ddp.codemod.edits import Hazard, Note, TextEdit
from dp2ddp.codemod.gone import gone_with
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plan import Plan, Planned
from dp2ddp.codemod.small.rule import Change, Finding, Rule


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
    comments = Comments(module)
    findings = [(rule.code, finding) for rule in rules for finding in rule.look(module)]
    edits: list[tuple[Planned, tuple[str, ...]]] = []
    answers: list[Planned] = []
    for code, finding in findings:
        if isinstance(finding, Change):
            planned = _place(module, code, finding.edit)
            if not comments.ignoring(code, planned.line):
                edits.append((planned, finding.helpers))
        else:
            answers.append(_answered(module, _place(module, code, finding), comments, accept))
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


def _place(module: Module, code: str, finding: TextEdit | Hazard | Note) -> Planned:
    node = finding.node
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0) + 1
    file = None if module is module.program.entry else module.shown
    return Planned(code, line, column, finding, module.source.place(line), file)


def _answered(
    module: Module, planned: Planned, comments: Comments, accept: Sequence[AcceptOption]
) -> Planned:
    """A hazard with the answer that a person has given to it, if any."""
    if not isinstance(planned.finding, Hazard):
        return planned
    if comment := comments.accepting(planned.code, planned.finding.node):
        return replace(planned, acceptance=Acceptance("comment", comment.reason))
    entry = module.program.entry.source.name
    for option in accept:
        if option.answers(planned.code, planned.file, entry, planned.place):
            return replace(planned, acceptance=Acceptance("option", option.reason))
    return planned


Edits = list[tuple[Planned, tuple[str, ...]]]


def _without_lost(module: Module, edits: Edits) -> Edits:
    """Without edits of text that another edit takes away."""
    spans = module.positions
    gone = [(each, text) for each, _ in edits if (text := gone_with(_edit(each), spans))]

    def is_lost(planned: Planned) -> bool:
        own = spans.span(_edit(planned).node)
        return any(other is not planned and text.span != own and text.holds(own) for other, text in gone)

    return [(planned, helpers) for planned, helpers in edits if not is_lost(planned)]


def _edit(planned: Planned) -> TextEdit:
    return planned.finding  # type: ignore[return-value]  # of an edit


__all__ = ["FilePlan", "Finding", "plan_file"]
