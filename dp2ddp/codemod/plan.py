"""Everything the rules want, collected and sorted, before anything is changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dp2ddp.codemod.acceptance import Acceptance, AcceptOption, Comment, Comments
from dp2ddp.codemod.edits import (
    DropArgument,
    Edit,
    Finding,
    Hazard,
    Import,
    Lift,
    Note,
    Remove,
    Replace,
    TextEdit,
)
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.positions import Span
from dp2ddp.codemod.rule import Rule, all_rules
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.source.cells import Place

WRAP_RULE = "DDP201"
WRAP_RULES = (WRAP_RULE, "DDP203", "DDP204", "DDP205")  # subclasses, by hand, handed on


@dataclass(frozen=True)
class Planned:
    """A finding with its place and the code of the rule that found it."""

    code: str
    line: int  # of the text
    column: int  # from 1, in characters
    finding: Finding
    place: Place  # the line as a person looks for it: of the file, or of a notebook's cell
    file: str | None = None  # a local module, where it is not the entry script
    acceptance: Acceptance | None = None  # a hazard's, where somebody has answered it

    @property
    def because(self) -> str:
        finding = self.finding
        return finding.message if isinstance(finding, (Hazard, Note)) else finding.because


@dataclass(frozen=True)
class Plan:
    """What will change, what stands in the way, and how it will run."""

    strategy: Strategy
    edits: tuple[Planned, ...]
    hazards: tuple[Planned, ...]  # open ones
    accepted: tuple[Planned, ...]  # hazards that a person has answered
    notes: tuple[Planned, ...]
    imports: tuple[Import, ...]
    lifts: tuple[Lift, ...]

    @property
    def wraps_converted(self) -> bool:
        """Whether anything of DataParallel itself is converted; without that the rest makes no sense."""
        return any(one.code in WRAP_RULES for one in self.edits)

    def text_edits(self) -> list[TextEdit]:
        return [
            one.finding for one in self.edits if not isinstance(one.finding, (Import, Lift, Hazard, Note))
        ]


def make_plan(
    facts: Facts, strategy: Strategy, rules: Sequence[Rule], accept: Sequence[AcceptOption] = ()
) -> Plan:
    """What the rules find in a file; `accept` answers hazards, as comments do."""
    comments = Comments(facts.script)
    found = [
        (rule.code, finding)
        for rule in rules
        for finding in rule.plan(facts, strategy)
        if rule.everywhere
        or isinstance(finding, (Import, Lift))
        or facts.reach.holds(facts.script, finding.node)
    ]
    placed = (_place(facts, code, _if_found(facts, finding)) for code, finding in found)
    kept = [
        _answered(facts, one, comments, accept)
        for one in placed
        if not _is_left_out(one, comments) and not _is_in_helpers(facts, one)
    ]
    removed = list(_removed_spans(facts, kept))
    kept = [one for one in kept if not _is_lost(facts, one, removed)]
    edits = sorted(
        (one for one in kept if not isinstance(one.finding, (Import, Lift, Hazard, Note))), key=_order(facts)
    )
    hazards = [one for one in kept if isinstance(one.finding, Hazard)]
    stale = [] if facts.is_converted else list(_stale(facts, comments, hazards, rules))
    return Plan(
        strategy=strategy,
        edits=tuple(edits),
        hazards=_sorted(one for one in hazards if not one.acceptance),
        accepted=_sorted(one for one in hazards if one.acceptance),
        notes=_sorted([one for one in kept if isinstance(one.finding, Note)] + stale),
        imports=_unique(
            one.finding for one in kept if isinstance(one.finding, Import) and _is_used(facts, one, edits)
        ),
        lifts=_unique_lifts(
            one.finding for one in kept if isinstance(one.finding, Lift) and _is_used(facts, one, edits)
        ),
    )


def _place(facts: Facts, code: str, finding: Finding) -> Planned:
    if isinstance(finding, (Import, Lift)):
        return Planned(code, 0, 0, finding, Place(0))
    node = finding.node
    start = facts.script.positions.span(node).start
    line = getattr(node, "lineno", 1)
    column = start - facts.script.positions.line_starts[line - 1] + 1
    place = facts.script.source.place(line)
    return Planned(code, line, column, finding, place, None if facts.is_entry else facts.script.shown)


def _if_found(facts: Facts, finding: Finding) -> Finding:
    """Before Python 3.12, `ast` tells wrong positions inside some f-strings; what is not there is not edited."""
    if isinstance(finding, (Import, Lift, Hazard, Note)) or not facts.script.in_format_string(finding.node):
        return finding
    if facts.script.stands_there(finding.node):
        return finding
    text = next(one for one in facts.script.scopes.ancestors(finding.node) if isinstance(one, ast.JoinedStr))
    told = ast.unparse(finding.node)
    return Hazard(
        text, f"`{told}` stands inside a long f-string, where it cannot be edited", "give it a name first"
    )


def _is_in_helpers(facts: Facts, planned: Planned) -> bool:
    return planned.line > 0 and planned.line in facts.script.helper_lines


def _is_left_out(planned: Planned, comments: Comments) -> bool:
    """`# dp2ddp: ignore[DDP501]` at the end of the line. A hazard is not left out: it is accepted."""
    return not isinstance(planned.finding, Hazard) and comments.ignoring(planned.code, planned.line)


def _answered(facts: Facts, planned: Planned, comments: Comments, accept: Sequence[AcceptOption]) -> Planned:
    """A hazard with the answer that a person has given to it, if any."""
    if not isinstance(planned.finding, Hazard):
        return planned
    if comment := comments.accepting(planned.code, planned.finding.node):
        return replace(planned, acceptance=Acceptance("comment", comment.reason))
    entry = facts.modules.entry.source.name
    for option in accept:
        if option.answers(planned.code, planned.file, entry, planned.place):
            return replace(planned, acceptance=Acceptance("option", option.reason))
    return planned


def _stale(
    facts: Facts, comments: Comments, hazards: Iterable[Planned], rules: Iterable[Rule]
) -> Iterator[Planned]:
    """Notes on comments that accept what is not there any more: the next one on that line would be accepted unseen."""
    ran, known = {rule.code for rule in rules}, {rule.code for rule in all_rules()}
    used = {
        (comment, one.code)
        for one in hazards
        if isinstance(one.finding, Hazard)
        and (comment := comments.accepting(one.code, one.finding.node)) is not None
    }
    for comment in comments:
        for code in comment.codes or ("",):
            if (
                comment.word == "accept"
                and (comment, code) not in used
                and (code in ran or code not in known)
            ):
                yield _stale_note(facts, comment, code, known)


def _stale_note(facts: Facts, comment: Comment, code: str, known: set[str]) -> Planned:
    message = (
        "accepts no hazard: there is none of this code here (any more); take the comment out"
        if code in known
        else f"accepts no hazard: {code or 'it'} names no rule; write accept[CODE]"
    )
    file = None if facts.is_entry else facts.script.shown
    place = facts.script.source.place(comment.line)
    return Planned(
        code or "accept", comment.line, comment.column, Note(facts.script.tree, message), place, file
    )


def _removed_spans(
    facts: Facts, planned: Iterable[Planned]
) -> Iterator[tuple[Planned, Span, tuple[Span, ...]]]:
    """Text that goes away, each with the holes in which text stays."""
    span = facts.script.positions.span
    for one in planned:
        if isinstance(one.finding, (DropArgument, Remove)):
            yield one, span(one.finding.node), ()
        elif isinstance(one.finding, Replace):
            yield one, span(one.finding.node), tuple(span(hole) for hole in one.finding.holes.values())


def _is_lost(facts: Facts, planned: Planned, removed: list[tuple[Planned, Span, tuple[Span, ...]]]) -> bool:
    """Whether an edit would change text that another edit takes away; it has nothing left to do then."""
    if isinstance(planned.finding, (Import, Lift, Hazard, Note)):
        return False
    mine = facts.script.positions.span(planned.finding.node)
    return any(
        other is not planned
        and span != mine
        and span.holds(mine)
        and not any(hole.holds(mine) for hole in holes)
        for other, span, holes in removed
    )


def _is_used(facts: Facts, planned: Planned, edits: list[Planned]) -> bool:
    """Whether an edit that is left mentions the import or the helper (others may have been silenced)."""
    asked = planned.finding
    name = (
        facts.names.helper(asked.helper) if isinstance(asked, Lift) else getattr(asked, "alias", None) or ""
    )
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(
        word.search(getattr(one.finding, "code", "") or getattr(one.finding, "helper", "")) for one in edits
    )


def _order(facts: Facts):  # type: ignore[no-untyped-def]  # a key function
    def key(one: Planned) -> tuple[int, int, str]:
        assert not isinstance(one.finding, (Import, Lift))
        span = facts.script.positions.span(one.finding.node)
        return span.start, -span.end, one.code

    return key


def _sorted(planned: Iterable[Planned]) -> tuple[Planned, ...]:
    return tuple(sorted(planned, key=lambda one: (one.file or "", one.line, one.column, one.code)))


def _unique(imports: Iterable[Edit]) -> tuple[Import, ...]:
    found = {(one.module, one.alias or ""): one for one in imports if isinstance(one, Import)}
    return tuple(found[key] for key in sorted(found))


def _unique_lifts(lifts: Iterable[Edit]) -> tuple[Lift, ...]:
    found = {one.helper: one for one in lifts if isinstance(one, Lift)}
    return tuple(found[key] for key in sorted(found))
