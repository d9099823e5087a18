"""Where the ranks join: before the first statement that does more than define, and behind the imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.own_mode import asks_launcher
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.visible import (
    acts,
    behind_new_start,
    behind_visible_devices,
    is_quiet,
    is_setting,
    sets_visible_devices,
)

# Calls that prepare the process and neither draw numbers nor touch a device; they stand between imports.
HARMLESS = (
    "sys.path.append",
    "sys.path.insert",
    "warnings.filterwarnings",
    "warnings.simplefilter",
    "matplotlib.use",
    "matplotlib.pyplot.switch_backend",
    "os.environ.setdefault",
    "os.chdir",
)
PARSER = "argparse.ArgumentParser"
DESCRIBING = ("add_argument", "add_argument_group", "add_mutually_exclusive_group", "set_defaults")
PLAIN_MODULES = ("os.path.", "collections.", "typing.", "string.", "math.")
PLAIN_CALLS = {
    *of("builtins", "len list dict tuple set frozenset range sorted int float str bool min max sum zip"),
    *of("builtins", "enumerate reversed"),
    *(PARSER, "torch.device", "torch.cuda.is_available", *of("torch", "Tensor FloatTensor LongTensor")),
    *("logging.getLogger", "re.compile", "os.environ.get", "os.getenv", "pathlib.Path", "functools.partial"),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """The two places at the top of a script where a conversion adds lines."""

    last_import: ast.stmt | None  # imports and lifted helpers go behind it
    first_act: ast.stmt | None  # join_process_group() goes before it
    guard: bool  # first_act stands first in `if __name__ == "__main__":`
    visible_devices: ast.expr | None = None  # what CUDA_VISIBLE_DEVICES is set to
    late_devices: ast.stmt | None = None  # CUDA_VISIBLE_DEVICES is set behind the place where ranks must join


NO_ENTRY = Entry(None, None, False)  # of a file that is imported, not started


def find_entry(modules: Modules) -> Entry:
    script = modules.entry
    body, on_import = script.tree.body, _OnImport(modules)
    first = next(
        (
            statement
            for statement in body
            if not _is_definition(script, statement) or on_import.acts(script, statement)
        ),
        None,
    )
    imports = [
        statement for statement in body[: body.index(first) if first else None] if _is_import(statement)
    ]
    guard = first is not None and is_main_guard(first)
    act = first.body[0] if isinstance(first, ast.If) and guard else first
    act, late = behind_visible_devices(script, behind_new_start(script, act))
    return Entry(
        imports[-1] if imports else None, act, guard and act is not first, _visible_devices(script), late
    )


def last_import(script: Script) -> ast.stmt | None:
    """The last of the imports that a file begins with."""
    body = script.tree.body
    first = next((statement for statement in body if not _is_definition(script, statement)), None)
    return next(
        (
            statement
            for statement in reversed(body[: body.index(first) if first else None])
            if _is_import(statement)
        ),
        None,
    )


class _OnImport:
    """Which imports run a local module that does more than define: it prints, writes, draws or asks devices."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.read: dict[str, tuple[bool, set[str]]] = {}

    def acts(self, script: Script, statement: ast.stmt) -> bool:
        pending = _imported(self.modules, script, statement)
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            seen.add(name)
            acts, imports = self._of(name)
            if acts:
                return True
            pending |= imports - seen
        return False

    def _of(self, name: str) -> tuple[bool, set[str]]:
        """Whether a module acts itself, and the local modules that it imports."""
        if name not in self.read:
            script = self.modules.by_name[name]
            run = [statement for statement in script.tree.body if not is_main_guard(statement)]
            imports = set().union(*(_imported(self.modules, script, statement) for statement in run))
            acts = not all(
                _is_definition(script, statement) or is_quiet(script, statement) for statement in run
            )
            self.read[name] = acts, imports
        return self.read[name]


def _imported(modules: Modules, script: Script, statement: ast.stmt) -> set[str]:
    """The local modules that an import runs, packages around them included."""
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    names = {alias.name for alias in statement.names}
    if isinstance(statement, ast.ImportFrom):
        module = script.scopes.absolute(statement)
        names = {module, *(f"{module}.{name}" for name in names)}
    parts = [name.split(".") for name in names]
    parents = {".".join(each[:length]) for each in parts for length in range(1, len(each) + 1)}
    return parents & modules.by_name.keys()


def _visible_devices(script: Script) -> ast.expr | None:
    """What the script sets CUDA_VISIBLE_DEVICES to."""
    for node in script.nodes(ast.Assign):
        if isinstance(node, ast.Assign) and sets_visible_devices(script, node):
            return node.value
    return None


def is_main_guard(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, either way round."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    sides = [statement.test.left, *statement.test.comparators]
    names = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return names and any(literal(side) == "__main__" for side in sides)


def _is_import(statement: ast.stmt) -> bool:
    """An import, alone or inside `try:` and `if`."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    inside = isinstance(statement, (ast.Try, ast.If, ast.With)) and not is_main_guard(statement)
    return inside and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(statement))


def _is_definition(script: Script, statement: ast.stmt) -> bool:
    """Whether running a statement only defines things: no draw, no device, no file, no call of the user's code."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return not any(acts(script, node) for node in _run_at_definition(statement))
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr() | ast.Assign() | ast.AnnAssign() if asks_launcher(script, statement):
            return False  # the ranks must have joined, and taken that away
        case ast.Expr(value=ast.Call() as call):
            return script.scopes.name(call.func) in HARMLESS or _describes_arguments(script, call)
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return _is_plain(script, value) or is_setting(script, statement)
        case ast.If() | ast.Try():
            return not is_main_guard(statement) and _defines_only(script, statement)
    return False


def _defines_only(script: Script, statement: ast.If | ast.Try) -> bool:
    blocks = [
        statement.body,
        statement.orelse,
        *([] if isinstance(statement, ast.If) else [statement.finalbody]),
    ]
    handlers = [] if isinstance(statement, ast.If) else [handler.body for handler in statement.handlers]
    if isinstance(statement, ast.If) and not _is_plain(script, statement.test):
        return False
    return all(_is_definition(script, statement) for block in (*blocks, *handlers) for statement in block)


def _is_plain(script: Script, value: ast.expr | None) -> bool:
    """An expression without calls (os.path and the like aside): it can draw nothing and print nothing."""
    if value is None:
        return True
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(
        _is_plain_name(script.scopes.name(call.func) or "") or _describes_arguments(script, call)
        for call in calls
    )


def _describes_arguments(script: Script, call: ast.Call) -> bool:
    """`parser.add_argument(...)`: what the command line may be; it is read later, by parse_args."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in DESCRIBING:
        return False
    maker = script.scopes.value(call.func.value)
    if not isinstance(maker, ast.Call):
        return False
    parser = script.scopes.name(maker.func) == PARSER or _describes_arguments(script, maker)
    return parser and all(_is_plain(script, keyword.value) for keyword in call.keywords)


def _is_plain_name(name: str) -> bool:
    return name in PLAIN_CALLS or name.startswith(PLAIN_MODULES)


def _run_at_definition(statement: ast.stmt) -> list[ast.AST]:
    """What runs when a def or class is executed: decorators, defaults, and the class body itself."""
    if isinstance(statement, ast.ClassDef):
        own = [
            node
            for node in statement.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
        methods = [part for node in statement.body if node not in own for part in _run_at_definition(node)]
        return [*statement.decorator_list, *own, *methods]
    assert isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
    defaults = [default for default in (*statement.args.defaults, *statement.args.kw_defaults) if default]
    return [*statement.decorator_list, *defaults]
