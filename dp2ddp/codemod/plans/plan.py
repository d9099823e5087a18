"""What the rules find in a file, with its place, sorted and answered."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dp2ddp.codemod.edits import CODE, Edit, Finding, Hazard, Header, Note, PassTo, gone_with
from dp2ddp.codemod.looks.hidden_wraps import left_to_script
from dp2ddp.codemod.looks.ours import is_brought
from dp2ddp.codemod.looks.own_mode import OwnMode
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.acceptance import AcceptOption, Comments, answered, stale_comments
from dp2ddp.codemod.plans.planned import Plan, Planned, place
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule
from dp2ddp.source.helper_module import IMPORTED, pasted_lines

IN_TEXT = Reason(
    "in-f-string", "`{code}` stands inside a long f-string, where it cannot be edited", "give it a name first"
)


def plan_file(module: Module, rules: Sequence[Rule], accept: Sequence[AcceptOption]) -> Plan:
    """Look at a file by all rules."""
    comments, entry = Comments(module), module.program.entry
    edits: list[Planned] = []
    answers: list[Planned] = []
    for code, finding in _found_by(rules, module):
        planned = place(module, code, finding)
        if not isinstance(finding, Hazard) and comments.ignoring(code, planned.line):
            continue
        if isinstance(finding, Edit):
            edits.append(planned)
        else:
            answers.append(answered(planned, comments, accept, entry.source.name))
    edits = _without_lost(module, edits)
    helpers = {name for each in edits for name in each.helpers}
    renamed = {name: new for name in helpers if (new := _free_name(module, name)) != name}
    hazards = [each for each in answers if isinstance(each.finding, Hazard)]
    notes = [each for each in answers if isinstance(each.finding, Note)]
    notes += stale_comments(module, comments, hazards, {rule.code for rule in rules})
    return Plan(
        module,
        edits=in_order(_with_names(each, renamed) for each in edits),
        hazards=in_order(each for each in hazards if not each.acceptance),
        accepted=in_order(each for each in hazards if each.acceptance),
        notes=in_order(notes),
        renamed=renamed,
    )


def edited(plan: Plan, header: Header | None) -> str:
    """The new text of a file."""
    if not plan.edits and not header:
        return plan.module.source.text
    from dp2ddp.codemod.writing.apply import (
        edit_text,  # libcst takes longer to import than most files to convert
    )

    return edit_text(plan.module, plan.text_edits, header)


def in_order(planned: Iterable[Planned]) -> tuple[Planned, ...]:
    """As they stand in the text."""
    return tuple(sorted(planned, key=lambda each: (each.line, each.column, each.code)))


def _found_by(rules: Sequence[Rule], module: Module) -> Iterator[tuple[str, Finding]]:
    """What rules find, with their codes; but for what does not run, or is no code of the user's."""
    own_mode, pasted, reach = OwnMode(module), pasted_lines(module.source), module.program.reach
    for rule in rules:
        for finding in left_to_script(module, rule.look(module)):
            node = finding.node
            if getattr(node, "lineno", 0) in pasted or not rule.everywhere and own_mode.holds(node):
                continue
            if isinstance(finding, PassTo) and _is_converted(module, finding.node.func):
                continue
            if isinstance(finding, Hazard) and not rule.everywhere and not reach.runs(module, node):
                unreached = f"{finding.because}; but nothing reaches this"
                yield rule.code, Note(node, replace(finding.because, sentence=unreached))
            elif rule.everywhere or isinstance(finding, Hazard) or reach.holds(module, node):
                yield rule.code, _if_present(module, finding)


def _is_converted(module: Module, called: ast.expr) -> bool:
    """Whether what is called is a helper, which an earlier conversion has put there."""
    if (module.name(called) or "").startswith(IMPORTED):
        return True
    home, definition = module.definition(called) or (module, None)
    return getattr(definition, "lineno", 0) in pasted_lines(home.source)


def _if_present(module: Module, finding: Finding) -> Finding:
    """Before Python 3.12, `ast` tells wrong positions inside some f-strings; what is not there is not edited."""
    node = finding.node
    if not isinstance(finding, Edit) or isinstance(node, ast.stmt) or module.stands_there(node):
        return finding
    text = module.enclosing(node, ast.JoinedStr)
    return Hazard(text, IN_TEXT.of(code=ast.unparse(node))) if text else finding


def _without_lost(module: Module, edits: Sequence[Planned]) -> list[Planned]:
    """Without edits of text that another edit takes away."""
    positions = module.positions
    gone = [text for each in edits if (text := gone_with(each.finding, positions))]
    spans = [positions.span(each.finding.node) for each in edits]
    lost = [any(text.span != own and text.holds(own) for text in gone) for own in spans]
    return [each for each, is_lost in zip(edits, lost, strict=True) if not is_lost]


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
