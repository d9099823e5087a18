"""Statements that only define: every rank may run them by itself, before the ranks join."""

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.knowledge.functions import Does, does, what_is
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import defaults, is_main_guard

# What asks who started it: ranks forget that when they join, so they join before.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
QUIET_HOMES = (
    *("argparse.", "os.path.", "collections.", "typing.", "string.", "math.", "logging.getLogger"),
    *("re.compile", "os.environ", "os.getenv", "pathlib.", "functools.", "warnings.", "sys.path"),
    *("matplotlib.use", "builtins.", "enum.", "dataclasses.", "os.chdir", "torch.device"),
    *("torch.cuda.is_available", "abc.", "itertools."),
    # as decorators
    *("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.autocast"),
    *("torch.amp.autocast", "torch.cuda.amp.autocast"),
)
LOUD = {f"builtins.{name}" for name in ("print", "open", "input", "exec", "eval", "breakpoint", "__import__")}
QUIET_METHODS = {
    *("add_argument", "add_argument_group", "add_mutually_exclusive_group", "set_defaults"),
    *("parse_args", "parse_known_args", "split", "join", "format", "strip", "items", "keys", "values"),
    *("get", "update", "append", "insert", "setdefault", "lower", "upper", "replace"),
}


class Quiet:
    """Statements that may run on every rank by itself; an import runs the module."""

    def __init__(self, entry: Module) -> None:
        self.entry, self.seen = entry, {entry}
        self.pending: list[tuple[Module, ast.stmt]] = []  # of modules that import each other by the hundred

    def first_loud(self, module: Module, body: Iterable[ast.stmt]) -> ast.stmt | None:
        return next((each for each in body if not self._is_quiet_throughout(module, each)), None)

    def _is_quiet_throughout(self, module: Module, statement: ast.stmt) -> bool:
        """Whether a statement is quiet, and whatever it imports."""
        self.pending = [(module, statement)]
        while self.pending:
            if not self.is_quiet(*self.pending.pop()):
                return False
        return True

    def is_quiet(self, module: Module, statement: ast.stmt) -> bool:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                usual = defaults(statement).values()
                acts = any(does_something(call.name) for value in usual for call in module.calls_in(value))
                return not acts and all(
                    self.is_quiet_expression(module, each) for each in statement.decorator_list
                )
            case ast.ClassDef(body=body):
                return all(self.is_quiet(module, each) for each in body)
            case ast.Import() | ast.ImportFrom():
                for name in _imported(module, statement):
                    self._follow(module, name)
                return True
            case ast.If() if is_main_guard(statement):
                return module is not self.entry
            case ast.If() | ast.Try() | ast.For():
                return all(self._is_quiet_part(module, each) for each in ast.iter_child_nodes(statement))
            case ast.Assign() | ast.AnnAssign() | ast.Expr() | ast.AugAssign():
                return self.is_quiet_expression(module, statement)
        return isinstance(statement, (ast.Pass, ast.Global, ast.Delete))

    def _is_quiet_part(self, module: Module, node: ast.AST) -> bool:
        if isinstance(node, ast.ExceptHandler):
            return all(self.is_quiet(module, each) for each in node.body)
        is_quiet = self.is_quiet if isinstance(node, ast.stmt) else self.is_quiet_expression
        return is_quiet(module, node)  # type: ignore[arg-type]  # a statement, or not

    def is_quiet_expression(self, module: Module, node: ast.AST) -> bool:
        pending = [node]
        while pending:
            each = pending.pop()
            if isinstance(each, ast.Lambda):  # runs when it is called
                continue
            if isinstance(each, ast.Constant) and each.value in LAUNCHER:
                return False
            if isinstance(each, ast.Call) and not self._is_quiet_call(module, each):
                return False
            pending += ast.iter_child_nodes(each)
        return True

    def _is_quiet_call(self, module: Module, call: ast.Call) -> bool:
        name, method = module.name(call.func), Call(call, None).method
        is_known = name.startswith(QUIET_HOMES) if name else method in QUIET_METHODS
        return is_known and not does_something(name)

    def _follow(self, importer: Module, name: str) -> None:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            module = importer.program.by_name.get(".".join(parts[:count]))
            if module is not None and module not in self.seen:
                self.seen.add(module)
                self.pending += [(module, each) for each in module.tree.body]


def does_something(name: str | None) -> bool:
    """Whether a function is known to do something."""
    return name in LOUD or what_is(name) is not None and does(name) is not Does.MAKE_DEVICE


def _imported(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        home = module.home_of(node)
        yield home
        yield from (f"{home}.{alias.name}" for alias in node.names)
