"""How a person answers a hazard: by a comment in the script, or by an option of the command.

`# dp2ddp: accept[DDP908] reason`, at the end of the hazard's line or above it, and `--accept DDP908:12` say: I have
looked at it, go on. The hazard stays in the report, as accepted. `# dp2ddp: ignore[DDP503]` leaves a rule out on its
line: no edit, no note; a hazard of that rule is accepted by it, since none goes away without a word.
"""

from __future__ import annotations

import ast
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from tokenize import COMMENT, generate_tokens

from dp2ddp.codemod.edits import Hazard, Note
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import bounds
from dp2ddp.codemod.plans.planned import Acceptance, Planned, local_file
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import all_rules
from dp2ddp.errors import UnmatchedAcceptanceError
from dp2ddp.source.files import CellPlace

_COMMENT = re.compile(r"#\s*dp2ddp:\s*(accept|ignore)\b(?:\[([A-Za-z0-9,\s]*)\])?:?\s*(.*)")
_OPTION = re.compile(r"(?P<code>[A-Za-z]+\d+):(?:(?P<where>.+?):)?(?P<line>\d+)(?:\s+(?P<reason>.*))?")
NO_HAZARD = Reason(
    "accepts-nothing", "accepts no hazard: there is none of this code here (any more); take the comment out"
)
NO_RULE = Reason("accepts-no-rule", "accepts no hazard: {code} names no rule; write accept[CODE]")
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Delete, ast.Raise, ast.Assert)


@dataclass(frozen=True)
class AcceptOption:
    """`--accept CODE:line`, `CODE:file:line`, or `CODE:cell:line` of a notebook; a reason may follow a blank."""

    text: str
    code: str
    where: str | None  # a file, or the number of a cell
    line: int
    reason: str

    def answers(self, code: str, file: str | None, entry: str, place: CellPlace) -> bool:
        """Whether it means a hazard of this code, in this file (None: the entry script), at this place."""
        if (code, place.line) != (self.code, self.line):
            return False
        if place.cell is not None:
            return self.where == str(place.cell)
        if self.where is None:
            return file is None
        return _is_same_file(self.where, file or entry)


def accept_option(text: str) -> AcceptOption:
    """The option that is meant; a ValueError says what it looks like."""
    match = _OPTION.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not CODE:LINE, CODE:FILE:LINE, or CODE:CELL:LINE of a notebook")
    return AcceptOption(
        text.strip(), match["code"].upper(), match["where"], int(match["line"]), match["reason"] or ""
    )


def _is_same_file(said: str, shown: str) -> bool:
    """`models/net.py` means that file wherever it lies: a person names it as the report did, or shorter."""
    if os.path.abspath(said) == os.path.abspath(shown):
        return True
    parts, whole = os.path.normpath(said).split(os.sep), os.path.abspath(shown).split(os.sep)
    return whole[-len(parts) :] == parts


def refuse_unmatched(
    options: Sequence[AcceptOption], accepted: Iterable[Planned], still_open: Iterable[Planned], entry: str
) -> None:
    """An UnmatchedAcceptanceError for an option that answers nothing: it answers for a line that has moved, say."""
    answered = list(accepted)
    for option in options:
        if any(option.answers(hazard.code, hazard.file, entry, hazard.place) for hazard in answered):
            continue
        there = ", ".join(dict.fromkeys(option_text(hazard) for hazard in still_open))
        raise UnmatchedAcceptanceError(
            f"--accept {option.text}: no hazard there; "
            + (f"open ones: {there}" if there else "none is open at all")
        )


def option_text(planned: Planned) -> str:
    """What --accept takes for a hazard."""
    place = planned.place
    where = planned.file if planned.file else place.cell
    return f"{planned.code}:{where}:{place.line}" if where else f"{planned.code}:{place.line}"


@dataclass(frozen=True)
class Comment:
    """A comment that answers what is found on a line."""

    line: int  # where it stands
    column: int  # from 1
    word: str  # accept or ignore
    codes: tuple[str, ...]
    reason: str

    def accepts(self, code: str) -> bool:
        """Whether a hazard of this code is answered. `accept` names codes in full: it answers what was looked at."""
        return self.ignores(code) if self.word == "ignore" else code in self.codes

    def ignores(self, code: str) -> bool:
        """Whether it leaves the rule of this code out; families (`DDP5`), or all rules where none is named."""
        return self.word == "ignore" and (not self.codes or code.startswith(self.codes))


class Comments:
    """Those of one file, by the lines that they speak for."""

    def __init__(self, script: Module) -> None:
        self._script, text = script, script.source.text
        self._by_line: dict[int, Comment] = {}
        self._alone: set[int] = set()  # lines that are nothing but a comment
        lines = io.StringIO(text if "dp2ddp:" in text else "", newline=None)
        for token in generate_tokens(lines.readline):
            if token.type == COMMENT:
                line, column = token.start
                self._alone |= set() if token.line[:column].strip() else {line}
                if match := _COMMENT.search(token.string):
                    word, codes, reason = match.groups()
                    named = tuple(code.strip().upper() for code in (codes or "").split(",") if code.strip())
                    place = column + match.start() + 1
                    self._by_line[line] = Comment(line, place, word, named, reason.strip())

    def __iter__(self) -> Iterator[Comment]:
        return iter(self._by_line.values())

    def ignoring(self, code: str, line: int) -> bool:
        """Whether a comment at the end of a line leaves a rule out there."""
        comment = self._by_line.get(line)
        return comment is not None and comment.ignores(code)

    def accepting(self, code: str, node: ast.AST) -> Comment | None:
        """The comment that answers a hazard: on its line, at an end of its statement, or above either."""
        if not self._by_line:
            return None
        comments = (self._by_line.get(line) for line in self._lines_for(node))
        return next((comment for comment in comments if comment and comment.accepts(code)), None)

    def _lines_for(self, node: ast.AST) -> Iterator[int]:
        starts = [getattr(node, "lineno", 1)]
        yield starts[0]
        if not isinstance(node, ast.Module):
            statement = self._script.statement(node)
            starts.append(bounds(statement)[0])
            yield statement.lineno
            if isinstance(statement, _SIMPLE):
                yield statement.end_lineno or statement.lineno
        for start in starts:
            above = start - 1
            while above in self._alone:
                yield above
                above -= 1


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
    file: Module, comments: Comments, hazards: Iterable[Planned], ran: Set[str]
) -> Iterator[Planned]:
    """Notes on comments that accept what is not there any more: the next one on that line would be accepted unseen.

    `ran`: the codes of the rules that looked at the file.
    """
    accepting = [comment for comment in comments if comment.word == "accept"]
    if not accepting:
        return
    known = {rule.code for rule in all_rules()}  # of all styles: asked only where somebody names a code
    used = {(comments.accepting(hazard.code, hazard.finding.node), hazard.code) for hazard in hazards}
    for comment in accepting:
        for code in comment.codes or ("",):
            if (comment, code) not in used and (code in ran or code not in known):
                note = Note(file.tree, NO_HAZARD if code in known else NO_RULE.of(code=code or "it"))
                place = file.source.place(comment.line)
                yield Planned(code or "accept", comment.line, comment.column, note, place, local_file(file))
