"""Hazards that a person has answered, and answers to none."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from dp2ddp.codemod.edits import Hazard, Note
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.acceptance import AcceptOption, Comment, Comments
from dp2ddp.codemod.plans.planned import Acceptance, Planned, local_file
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import all_rules

NO_HAZARD = Reason(
    "accepts-nothing", "accepts no hazard: there is none of this code here (any more); take the comment out"
)
NO_RULE = Reason("accepts-no-rule", "accepts no hazard: {code} names no rule; write accept[CODE]")


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
    if not any(comment.word == "accept" for comment in comments):
        return
    known = {rule.code for rule in all_rules()}  # of all styles: asked only where somebody names a code
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
                yield _stale_note(file, comment, code, known)


def _stale_note(file: Module, comment: Comment, code: str, known: Set[str]) -> Planned:
    note = Note(file.tree, NO_HAZARD if code in known else NO_RULE.of(code=code or "it"))
    place = file.source.place(comment.line)
    return Planned(code or "accept", comment.line, comment.column, note, place, local_file(file))
