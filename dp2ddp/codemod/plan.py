"""Everything the rules want, collected and sorted, before anything is changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from dp2ddp.codemod.acceptance import Acceptance, AcceptOption, Comment, Comments
from dp2ddp.codemod.editable import ParsedFile
from dp2ddp.codemod.edits import Edit, Finding, Hazard, Import, Lift, Note, TextEdit
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.positions import Positions
from dp2ddp.codemod.gone import Gone, gone_with, new_code
from dp2ddp.codemod.rule import Rule, all_rules
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.source.cells import CellPlace

WRAP_RULE = "DDP201"
WRAP_RULES = (WRAP_RULE, "DDP203", "DDP204", "DDP205", "DDP702")  # subclasses, by hand, handed on, idiomatic


@dataclass(frozen=True)
class Planned:
    """A finding with its place and the code of the rule that found it."""

    code: str
    line: int  # of the text
    column: int  # from 1, in characters
    finding: Finding
    place: CellPlace  # the line as a person looks for it: of the file, or of a notebook's cell
    file: str | None = None  # a local module, where it is not the entry script
    acceptance: Acceptance | None = None  # a hazard's, where somebody has answered it

    @property
    def because(self) -> str:
        finding = self.finding
        return finding.message if isinstance(finding, (Hazard, Note)) else finding.because


def listed(edits: Iterable[Planned]) -> list[Planned]:
    """Edits as they are listed and counted: several small things that a rule does to one line are one of them."""
    return list({(edit.code, edit.file, edit.line, edit.because): edit for edit in edits}.values())


@dataclass(frozen=True)
class Plan:
    """What will change, what stands in the way, and how it will run."""

    strategy: Strategy | None
    edits: tuple[Planned, ...]
    hazards: tuple[Planned, ...]  # open ones
    accepted: tuple[Planned, ...]  # hazards that a person has answered
    notes: tuple[Planned, ...]
    imports: tuple[Import, ...]
    lifts: tuple[Lift, ...]

    @property
    def wraps_converted(self) -> bool:
        """Whether anything of DataParallel itself is converted; without that the rest makes no sense."""
        return any(edit.code in WRAP_RULES for edit in self.edits)

    def text_edits(self) -> list[TextEdit]:
        return [
            edit.finding for edit in self.edits if not isinstance(edit.finding, (Import, Lift, Hazard, Note))
        ]


def make_plan(
    facts: Facts, strategy: Strategy, rules: Sequence[Rule], accept: Sequence[AcceptOption] = ()
) -> Plan:
    """What the rules find in a file; `accept` answers hazards, as comments do."""
    comments = Comments(facts.script)
    findings = [
        (rule.code, finding)
        for rule in rules
        for finding in rule.plan(facts, strategy)
        if rule.everywhere
        or isinstance(finding, (Import, Lift))
        or facts.reach.holds(facts.script, finding.node)
    ]
    placed = (_placed(facts, code, _if_present(facts, finding)) for code, finding in findings)
    kept = [
        answered(planned, comments, accept, facts.modules.entry.source.name)
        for planned in placed
        if not _is_left_out(planned, comments) and not _is_in_helpers(facts, planned)
    ]
    positions = facts.script.positions
    gone = [(planned, text) for planned in kept if (text := gone_with(planned.finding, positions))]
    kept = [planned for planned in kept if not is_lost(positions, planned, gone)]
    edits = sorted(
        (planned for planned in kept if not isinstance(planned.finding, (Import, Lift, Hazard, Note))),
        key=_order(facts),
    )
    hazards = [planned for planned in kept if isinstance(planned.finding, Hazard)]
    stale: list[Planned] = []
    if not facts.is_converted:
        ran, known = {rule.code for rule in rules}, {rule.code for rule in all_rules()}
        shown = None if facts.is_entry else facts.script.shown
        stale = list(stale_comments(facts.script, shown, comments, hazards, ran, known))
    return Plan(
        strategy=strategy,
        edits=tuple(edits),
        hazards=_sorted(hazard for hazard in hazards if not hazard.acceptance),
        accepted=_sorted(hazard for hazard in hazards if hazard.acceptance),
        notes=_sorted([planned for planned in kept if isinstance(planned.finding, Note)] + stale),
        imports=_unique(
            planned.finding
            for planned in kept
            if isinstance(planned.finding, Import) and _is_used(facts, planned, edits)
        ),
        lifts=_unique_lifts(
            planned.finding
            for planned in kept
            if isinstance(planned.finding, Lift) and _is_used(facts, planned, edits)
        ),
    )


def _placed(facts: Facts, code: str, finding: Finding) -> Planned:
    if isinstance(finding, (Import, Lift)):
        return Planned(code, 0, 0, finding, CellPlace(0))
    return place(facts.script, code, finding, None if facts.is_entry else facts.script.shown)


def place(file: ParsedFile, code: str, finding: TextEdit | Hazard | Note, shown: str | None) -> Planned:
    """A finding with its place in a file; `shown`: the path of a local module."""
    node = finding.node
    start = file.positions.span(node).start
    line = getattr(node, "lineno", 1)
    column = start - file.positions.line_starts[line - 1] + 1
    return Planned(code, line, column, finding, file.source.place(line), shown)


def _if_present(facts: Facts, finding: Finding) -> Finding:
    """Before Python 3.12, `ast` tells wrong positions inside some f-strings; what is not there is not edited."""
    if isinstance(finding, (Import, Lift, Hazard, Note)) or not facts.script.in_format_string(finding.node):
        return finding
    if facts.script.stands_there(finding.node):
        return finding
    text = next(
        ancestor
        for ancestor in facts.script.scopes.ancestors(finding.node)
        if isinstance(ancestor, ast.JoinedStr)
    )
    code = ast.unparse(finding.node)
    return Hazard(
        text, f"`{code}` stands inside a long f-string, where it cannot be edited", "give it a name first"
    )


def _is_in_helpers(facts: Facts, planned: Planned) -> bool:
    return planned.line > 0 and planned.line in facts.script.helper_lines


def _is_left_out(planned: Planned, comments: Comments) -> bool:
    """`# dp2ddp: ignore[DDP501]` at the end of the line. A hazard is not left out: it is accepted."""
    return not isinstance(planned.finding, Hazard) and comments.ignoring(planned.code, planned.line)


def answered(planned: Planned, comments: Comments, accept: Sequence[AcceptOption], entry: str) -> Planned:
    """A hazard with the answer that a person has given to it, if any; `entry` is what the script is called."""
    if not isinstance(planned.finding, Hazard):
        return planned
    if comment := comments.accepting(planned.code, planned.finding.node):
        return replace(planned, acceptance=Acceptance("comment", comment.reason))
    for option in accept:
        if option.answers(planned.code, planned.file, entry, planned.place):
            return replace(planned, acceptance=Acceptance("option", option.reason))
    return planned


def stale_comments(
    file: ParsedFile,
    shown: str | None,
    comments: Comments,
    hazards: Iterable[Planned],
    ran: Set[str],
    known: Set[str],
) -> Iterator[Planned]:
    """Notes on comments that accept what is not there any more: the next one on that line would be accepted unseen.

    `ran`: the codes of the rules that looked at the file; `known`: of all that there are.
    """
    if not any(comment.word == "accept" for comment in comments):
        return
    used = {
        (comment, hazard.code)
        for hazard in hazards
        if isinstance(hazard.finding, Hazard)
        and (comment := comments.accepting(hazard.code, hazard.finding.node)) is not None
    }
    for comment in comments:
        for code in comment.codes or ("",):
            if (
                comment.word == "accept"
                and (comment, code) not in used
                and (code in ran or code not in known)
            ):
                yield _stale_note(file, shown, comment, code, known)


def _stale_note(file: ParsedFile, shown: str | None, comment: Comment, code: str, known: Set[str]) -> Planned:
    message = (
        "accepts no hazard: there is none of this code here (any more); take the comment out"
        if code in known
        else f"accepts no hazard: {code or 'it'} names no rule; write accept[CODE]"
    )
    place = file.source.place(comment.line)
    return Planned(code or "accept", comment.line, comment.column, Note(file.tree, message), place, shown)


def is_lost(positions: Positions, planned: Planned, gone: Sequence[tuple[Planned, Gone]]) -> bool:
    """Whether an edit would change text that another edit takes away; it has nothing left to do then."""
    if isinstance(planned.finding, (Import, Lift, Hazard, Note)):
        return False
    own = positions.span(planned.finding.node)
    return any(other is not planned and text.span != own and text.holds(own) for other, text in gone)


def _is_used(facts: Facts, planned: Planned, edits: list[Planned]) -> bool:
    """Whether an edit that is left mentions the import or the helper (others may have been silenced)."""
    finding = planned.finding
    name = facts.names.helper(finding.helper) if isinstance(finding, Lift) else _bound_by(finding)
    word = re.compile(rf"\b{re.escape(name)}\b")
    return word.search(new_code(edit.finding for edit in edits)) is not None


def _bound_by(finding: Finding) -> str:
    """The name that an import brings."""
    return (finding.alias or finding.name or finding.module) if isinstance(finding, Import) else ""


def _order(facts: Facts):  # type: ignore[no-untyped-def]  # a key function
    def key(planned: Planned) -> tuple[int, int, str]:
        assert not isinstance(planned.finding, (Import, Lift))
        span = facts.script.positions.span(planned.finding.node)
        return span.start, -span.end, planned.code

    return key


def _sorted(planned: Iterable[Planned]) -> tuple[Planned, ...]:
    return tuple(sorted(planned, key=lambda edit: (edit.file or "", edit.line, edit.column, edit.code)))


def _unique(imports: Iterable[Edit]) -> tuple[Import, ...]:
    unique = {
        (import_.module, import_.name or "", import_.alias or ""): import_
        for import_ in imports
        if isinstance(import_, Import)
    }
    return tuple(unique[key] for key in sorted(unique))


def _unique_lifts(lifts: Iterable[Edit]) -> tuple[Lift, ...]:
    unique = {lift.helper: lift for lift in lifts if isinstance(lift, Lift)}
    return tuple(unique[key] for key in sorted(unique))
