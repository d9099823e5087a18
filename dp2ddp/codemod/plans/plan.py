"""What the rules find in a file, with its place, sorted and answered."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dp2ddp.codemod.edits import CODE, Gone, Hazard, Note, PassTo, TextEdit, gone_with
from dp2ddp.codemod.looks.library_ranks import left_to_script
from dp2ddp.codemod.looks.ours import is_brought
from dp2ddp.codemod.looks.own_mode import OwnMode
from dp2ddp.codemod.looks.waiting import if_together
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import Positions
from dp2ddp.codemod.plans.acceptance import AcceptOption, Comments
from dp2ddp.codemod.plans.answered import answered, stale_comments
from dp2ddp.codemod.plans.planned import Plan, Planned, place
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Change, Finding, Rule
from dp2ddp.source.helper_module import IMPORTED, pasted_lines

Edits = list[tuple[Planned, tuple[str, ...]]]  # with the helpers that each needs
IN_TEXT = Reason(
    "in-f-string", "`{code}` stands inside a long f-string, where it cannot be edited", "give it a name first"
)


@dataclass(frozen=True)
class FilePlan:
    """The changes of a file, the helpers that they need, and what its owner must answer or should know."""

    module: Module
    plan: Plan
    helpers: frozenset[str]
    renamed: Mapping[str, str]  # helpers whose names the file uses for something else

    @property
    def edits(self) -> list[TextEdit]:
        return self.plan.text_edits()


def plan_file(module: Module, rules: Sequence[Rule], accept: Sequence[AcceptOption]) -> FilePlan:
    """Look at a file by all rules."""
    comments, entry = Comments(module), module.program.entry
    edits: Edits = []
    answers: list[Planned] = []
    for code, finding in _found_by(rules, module):
        planned = place(module, code, finding.edit if isinstance(finding, Change) else finding)
        if not isinstance(finding, Hazard) and comments.ignoring(code, planned.line):
            continue
        if isinstance(finding, Change):
            edits.append((planned, finding.helpers))
        else:
            answers.append(answered(planned, comments, accept, entry.source.name))
    edits = _without_lost(module, edits)
    helpers = frozenset(name for _, helpers in edits for name in helpers)
    renamed = {name: new for name in helpers if (new := _free_name(module, name)) != name}
    hazards = [each for each in answers if isinstance(each.finding, Hazard)]
    stale = stale_comments(module, comments, hazards, {rule.code for rule in rules})
    plan = Plan(
        edits=tuple(sorted((_with_names(each, renamed) for each, _ in edits), key=place_of)),
        hazards=tuple(sorted((each for each in hazards if not each.acceptance), key=place_of)),
        accepted=tuple(sorted((each for each in hazards if each.acceptance), key=place_of)),
        notes=tuple(
            sorted([*(each for each in answers if isinstance(each.finding, Note)), *stale], key=place_of)
        ),
    )
    return FilePlan(module, plan, helpers, renamed)


def place_of(planned: Planned) -> tuple[int, int, str]:
    return planned.line, planned.column, planned.code


def _found_by(rules: Sequence[Rule], module: Module) -> Iterator[tuple[str, Finding]]:
    """What rules find, with their codes; but for what does not run, or is no code of the user's."""
    own_mode, pasted, reach = OwnMode(module), pasted_lines(module.source), module.program.reach
    for rule in rules:
        for finding in left_to_script(module, rule.look(module)):
            node = finding.node
            if getattr(node, "lineno", 0) in pasted or not rule.everywhere and own_mode.holds(node):
                continue
            if isinstance(finding, Change) and _is_converted(module, finding):
                continue
            if isinstance(finding, Hazard) and not rule.everywhere and not reach.runs(module, node):
                unreached = f"{finding.because}; but nothing reaches this"
                yield rule.code, Note(node, replace(finding.because, sentence=unreached))
            elif rule.everywhere or isinstance(finding, Hazard) or reach.holds(module, node):
                yield rule.code, _if_present(module, if_together(module, finding))


def _is_converted(module: Module, finding: Change) -> bool:
    """Whether a call is one of a helper, which an earlier conversion has put there."""
    called = finding.edit.node.func if isinstance(finding.edit, PassTo) else None
    if (module.name(called) or "").startswith(IMPORTED):
        return True
    definition = module.definition(called) if called is not None else None
    return definition is not None and getattr(definition[1], "lineno", 0) in pasted_lines(
        definition[0].source
    )


def _if_present(module: Module, finding: Finding) -> Finding:
    """Before Python 3.12, `ast` tells wrong positions inside some f-strings; what is not there is not edited."""
    node = finding.node
    if not isinstance(finding, Change) or isinstance(node, ast.stmt) or module.stands_there(node):
        return finding
    text = module.enclosing(node, ast.JoinedStr)
    return Hazard(text, IN_TEXT.of(code=ast.unparse(node))) if text else finding


def _without_lost(module: Module, edits: Edits) -> Edits:
    """Without edits of text that another edit takes away."""
    positions = module.positions
    gone = [(each, text) for each, _ in edits if (text := gone_with(each.finding, positions))]
    return [(each, helpers) for each, helpers in edits if not _is_lost(positions, each, gone)]


def _is_lost(positions: Positions, planned: Planned, gone: Sequence[tuple[Planned, Gone]]) -> bool:
    """Whether an edit would change text that another edit takes away; it has nothing left to do then."""
    if isinstance(planned.finding, (Hazard, Note)):
        return False
    own = positions.span(planned.finding.node)
    return any(other is not planned and text.span != own and text.holds(own) for other, text in gone)


def _free_name(module: Module, helper: str) -> str:
    """What a helper is called in a file: its own name, unless the file uses that one for something else."""
    is_here, name = is_brought(module, module.bindings_of(helper)), helper
    while not is_here and module.bindings_of(name):
        name += "_"
    return name


def _with_names(planned: Planned, renamed: Mapping[str, str]) -> Planned:
    """An edit whose new code calls helpers by the names that they have in this file."""
    for name, new in renamed.items():
        parts = {part: text for part in CODE if isinstance(text := getattr(planned.finding, part, None), str)}
        changed = {part: re.sub(rf"\b{name}\b", new, text) for part, text in parts.items()}
        if changed != parts:
            planned = replace(planned, finding=replace(planned.finding, **changed))  # type: ignore[arg-type]
    return planned
