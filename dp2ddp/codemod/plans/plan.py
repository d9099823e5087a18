"""What the rules find in a file, with its place, sorted and answered."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dp2ddp.codemod.edits import (
    CODE,
    DropImport,
    Edit,
    Finding,
    Hazard,
    Header,
    Note,
    PassTo,
    Remove,
    TextEdit,
    gone_with,
    new_code,
)
from dp2ddp.codemod.looks.hidden_wraps import left_to_script
from dp2ddp.codemod.looks.ours import is_brought
from dp2ddp.codemod.looks.own_mode import OwnMode
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.plans.acceptance import AcceptOption, Comments, answered, stale_comments
from dp2ddp.codemod.plans.planned import WRAP_RULE, Plan, Planned, place
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule
from dp2ddp.source.helper_module import IMPORTED, pasted_lines

IN_TEXT = Reason(
    "in-f-string", "`{code}` stands inside a long f-string, where it cannot be edited", "give it a name first"
)
# An owner's word that an import stays although the file itself does not use it.
STAYS = re.compile(r"#.*(?:\bnoqa(?!\s*:)|\bnoqa\s*:.*F401|unused-import|dp2ddp:\s*ignore)", re.IGNORECASE)

Import = ast.Import | ast.ImportFrom


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


# --- imports that the edits leave unused: `from torch.nn import DataParallel` goes with the last use of DataParallel


def with_unused_imports(plan: Plan) -> Plan:
    """The plan of a file, and edits that take out what the others leave unused."""
    module = plan.module
    drops = [place(module, WRAP_RULE, drop) for drop in _unused_imports(module, plan.text_edits)]
    return replace(plan, edits=in_order([*plan.edits, *drops]))


def _unused_imports(module: Module, edits: Sequence[TextEdit]) -> Iterator[DropImport | Remove]:
    """Edits that take out what others leave unused; of a package's `__init__.py` others use what it imports."""
    if not edits or Path(module.source.name).name == "__init__.py":
        return
    positions = module.positions
    gone = [text for edit in edits if (text := gone_with(edit, positions))]
    brought = new_code(edits)
    imports: list[Import] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
    for node in imports:
        parent = module.parents[node]
        last = node.end_lineno or node.lineno
        lines = positions.text[positions.line_starts[node.lineno - 1] : positions.line_end(last)]
        if not isinstance(parent, (ast.Module, ast.FunctionDef)) or STAYS.search(lines):
            continue
        names = tuple(
            name
            for alias in node.names
            if _has_no_other_effect(node, alias)
            and (name := alias.asname or alias.name)
            and [binding.how for binding in module.bindings_of(name)] == [Binds.IMPORT]
            and (uses := [each for each in module.all(ast.Name) if each.id == name])
            and all(any(text.holds(positions.span(use)) for text in gone) for use in uses)
            and not _is_said(module, name, brought)
            and not _is_taken(module, name)
        )
        because = f"nothing uses it any more: {', '.join(names)}"
        if len(names) == len(node.names):
            yield Remove(node, because)
        elif names and not (last > node.lineno and "#" in lines):  # whose names have comments of their own
            yield DropImport(node, names, because)


def _has_no_other_effect(node: Import, alias: ast.alias) -> bool:
    """Whether the import of the module itself is nothing: the helpers import torch."""
    home = alias.name if isinstance(node, ast.Import) else node.module or ""
    root = home.split(".")[0]
    is_known = root == "torch" or root in sys.stdlib_module_names and root != "__future__"
    if isinstance(node, ast.Import):
        return is_known and alias.asname is not None and "." in home
    return is_known and not node.level and alias.name != "*"


def _is_said(module: Module, name: str, brought: str) -> bool:
    """Whether new code, a comment on types or a string names it: `__all__`, an annotation, `eval`."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    if word.search(brought) or re.search(rf"#\s*type:.*\b{re.escape(name)}\b", module.source.text):
        return True
    texts = (node.value for node in module.all(ast.Constant) if isinstance(node.value, str))
    return any(word.search(text) and _says(text, name) for text in texts)


def _says(text: str, name: str) -> bool:
    """Whether a text is an expression with a name in it."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _is_taken(module: Module, name: str) -> bool:
    """Whether another file of the program takes the name from this one."""
    own = {dotted for dotted, each in module.program.by_name.items() if each is module}
    others = [each for each in module.program.modules if each is not module]
    imports = ((other, node) for other in others for node in other.all(ast.ImportFrom))
    uses = ((other, node) for other in others for node in other.all(ast.Attribute) if node.attr == name)
    return any(
        other.home_of(node) in own and {"*", name} & {alias.name for alias in node.names}
        for other, node in imports
    ) or any(other.name(node.value) in own for other, node in uses)
