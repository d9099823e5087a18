"""Functions of a project that do nothing but write: rank 0 calls them, as a whole, once.

`save_checkpoint(state, is_best)` saves and copies, `make_folders()` makes six folders: one line where it is called says
what six lines inside would. A function is one if nothing of it is missed on a rank that does not run it: it hands
nothing back, changes nothing that was there before, draws nothing, and asks nothing of other ranks. What is not known
to be harmless keeps it from being one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dp2ddp.codemod.facts.call_graph import Part
from dp2ddp.codemod.facts.effects import Effect
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import SETTINGS, CallSite, Script
from dp2ddp.codemod.facts.tables import of

Function = ast.FunctionDef
WRITES = ("file", "process", "save", "saver", "open")  # kinds of effects that a file is left by
STATEMENTS = (
    *(ast.Expr, ast.If, ast.For, ast.With, ast.Try, ast.ExceptHandler),
    *(ast.Raise, ast.Pass, ast.Break, ast.Continue),
)
EXPRESSIONS = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Constant),
    *(ast.JoinedStr, ast.FormattedValue, ast.List, ast.Tuple, ast.Dict, ast.Name, ast.Attribute, ast.Call),
)
AROUND = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.keyword, ast.withitem)
READS = {  # called by name, and nothing is left of it but what it gives
    *of(
        "builtins",
        "print len str int float bool range enumerate zip sorted list tuple dict set repr format round",
    ),
    *of("builtins", "min max sum abs isinstance"),
    *of("os", "getcwd listdir fspath"),
    *of("logging", "debug info warning error"),
    *("json.dump", "json.dumps", "yaml.dump", "pickle.dump", "csv.writer"),
}
TEXT_METHODS = {
    *("format", "join", "split", "strip", "replace"),
    *("startswith", "endswith", "lower", "upper", "ljust"),
}
LOG_LEVELS = {"debug", "info", "warning", "error"}
FILE_METHODS = {"write", "writelines", "writerow", "writerows", "flush", "close"}


class Writers:
    """The functions that only write, and the calls of them."""

    def __init__(
        self, modules: Modules, places: Places, reach: Reach, effects: Mapping[Script, tuple[Effect, ...]]
    ):
        self.modules = modules
        self.places = places
        self.reach = reach
        self.functions: set[ast.AST] = set()
        self.calls: dict[Script, list[Effect]] = {}
        for script, kinds in effects.items():
            for function, inside in _by_function(script, kinds).items():
                calls = self._calls_instead(script, function, inside)
                for home, call in calls:
                    site = next(made for made in home.calls if made.node is call)
                    self.calls.setdefault(home, []).append(Effect(site, "file"))
                if calls:
                    self.functions.add(function)

    def of(self, script: Script, effects: tuple[Effect, ...]) -> Iterator[Effect]:
        """The effects of a file: a call of a function that only writes, instead of what stands in it."""
        for effect in effects:
            if not self.functions.intersection(script.scopes.ancestors(effect.call.node)):
                yield effect
        yield from self.calls.get(script, ())

    def _calls_instead(
        self, script: Script, function: Function, inside: list[Effect]
    ) -> list[tuple[Script, ast.Call]]:
        """The calls, if they are the smaller change: fewer than the lines inside, or the errors are caught inside."""
        if not self.reach.holds(script, function):
            return []
        mentions = [
            mention
            for mention in self.modules.graph.mentions((script, function))
            if self.reach.holds(*mention)
        ]
        calls = [site for mention in mentions if (site := self._bare_call((script, function), *mention))]
        fits = len(calls) < len(inside) or len(calls) == len(inside) and _catches(function)
        if not calls or len(calls) != len(mentions) or not fits:
            return []
        return calls if _OnlyWrites(script, function, inside).holds() else []

    def _bare_call(self, function: Part, script: Script, mention: ast.AST) -> tuple[Script, ast.Call] | None:
        """`save(state)` as a statement of the main flow: nobody asks what comes back."""
        if not self._is_meant(function, script, mention):
            return None
        call = script.scopes.parents[mention]
        if not isinstance(call, ast.Call) or call.func is not mention:
            return None
        is_statement = isinstance(script.scopes.parents[call], ast.Expr)
        return (script, call) if is_statement and self.places.of(call) is ExecutionPlace.MAIN else None

    def _is_meant(self, function: Part, script: Script, mention: ast.AST) -> bool:
        """Whether a mention means this function and no other: by its name, or `self.name` where one class has it."""
        home, node = function
        owner = home.scopes.parents[node]
        if not isinstance(owner, ast.ClassDef):
            return [meant for _, meant in self.modules.definitions(script, mention)] == [node]
        name = getattr(node, "name", "")
        methods = [method for each in self.modules.scripts for method in each.methods_by_name.get(name, ())]
        is_own = isinstance(mention, ast.Attribute) and isinstance(mention.value, ast.Name)
        return (
            methods == [node]
            and is_own
            and mention.value.id == "self"  # type: ignore[attr-defined]
            and script.scopes.owner_class(mention) is owner
        )


def _by_function(script: Script, effects: tuple[Effect, ...]) -> dict[Function, list[Effect]]:
    """The effects of a file, by the innermost function that they stand in."""
    by_function: dict[Function, list[Effect]] = {}
    for effect in effects:
        around = (
            parent
            for parent in script.scopes.ancestors(effect.call.node)
            if isinstance(parent, (*_SCOPES, ast.ClassDef))
        )
        function = next(around, None)
        if isinstance(function, Function):
            by_function.setdefault(function, []).append(effect)
    return by_function


def _catches(function: Function) -> bool:
    return any(isinstance(node, ast.Try) for node in ast.walk(function))


class _OnlyWrites:
    """Whether a function does nothing but write."""

    def __init__(self, script: Script, function: Function, inside: list[Effect]) -> None:
        self.script = script
        self.function = function
        self.effects = {effect.call.node: effect for effect in inside}
        self.parameters = {
            argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
        }
        self.files = set(self._own_files())
        self.errors = {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)}

    def _own_files(self) -> Iterator[str]:
        """Names of files that it opens itself, and of writers that it makes of them."""
        for node in ast.walk(self.function):
            match node:
                case ast.withitem(optional_vars=ast.Name(id=name)):
                    yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func) as made):
                    if made in self.effects or self.script.scopes.name(func) == "csv.writer":
                        yield name

    def holds(self) -> bool:
        function = self.function
        if function.decorator_list or self.script.never_runs(function):
            return False
        if any(effect.kind not in WRITES for effect in self.effects.values()):
            return False
        return all(map(self._is_harmless, _nodes(function)))

    def _is_harmless(self, node: ast.AST) -> bool:
        match node:
            case ast.Assign(targets=targets):
                return all(isinstance(target, ast.Name) for target in targets)
            case ast.AugAssign(target=target):
                return isinstance(target, ast.Name)
            case ast.For(target=target):
                return all(
                    isinstance(node, (ast.Name, ast.Tuple, ast.expr_context)) for node in ast.walk(target)
                )
            case ast.withitem(context_expr=opened):
                return isinstance(opened, ast.Call) and opened in self.effects or self._reads_file(opened)
            case ast.Return(value=value):
                return value is None
            case ast.Name(ctx=ast.Load()):
                return self._is_known(node)
            case ast.Attribute():
                return self._is_plain_attribute(node)
            case ast.Call():
                return self._is_harmless_call(node)
        return isinstance(node, (*STATEMENTS, *EXPRESSIONS, *AROUND))

    def _is_logger(self, node: ast.Name) -> bool:
        made = self.script.scopes.value(node)
        return isinstance(made, ast.Call) and self.script.scopes.name(made.func) == "logging.getLogger"

    def _reads_file(self, opened: ast.expr) -> bool:
        return isinstance(opened, ast.Call) and self.script.scopes.name(opened.func) == "builtins.open"

    def _is_known(self, node: ast.Name) -> bool:
        """A parameter, a name of its own, a module, a setting, a constant: of no rows that lie on other ranks."""
        scope = self.script.scopes.lookup(node.id, self.script.scopes.scope_of[node])
        if scope is not None and scope.node is self.function or node.id in SETTINGS | self.errors:
            return True
        name = self.script.scopes.name(node)
        if name is None:
            is_constant = isinstance(self.script.scopes.value(node), ast.Constant)
            return node.id == "__file__" or is_constant or self._is_logger(node)
        parent = self.script.scopes.parents[node]
        is_judged = isinstance(parent, ast.Attribute) or isinstance(parent, ast.Call) and parent.func is node
        return is_judged or name.startswith("builtins.")  # a type, an exception

    def _is_plain_attribute(self, node: ast.Attribute) -> bool:
        """`os.path.join`, `args.folder`, `self.folder` in a call that takes paths, a method of what is known."""
        if not isinstance(node.ctx, ast.Load):
            return False
        parent = self.script.scopes.parents[node]
        if isinstance(parent, ast.Attribute) or isinstance(parent, ast.Call) and parent.func is node:
            return True  # judged with what it is part of
        name = self.script.scopes.name(node)
        if name is not None:
            return name.startswith(("os.", "errno."))
        match node.value:
            case ast.Name(id=name) if name in SETTINGS | self.errors:
                return True
            case ast.Name(id="self"):
                return self._is_path(node)
        return False

    def _is_path(self, node: ast.AST) -> bool:
        """Whether a function that only takes paths is given this."""
        parent = self.script.scopes.parents[node]
        if not isinstance(parent, ast.Call) or node not in parent.args:
            return False
        effect = self.effects.get(parent)
        name = self.script.scopes.name(parent.func) or ""
        return (
            name.startswith("os.path.") or effect is not None and effect.kind in ("file", "process", "open")
        )

    def _is_harmless_call(self, call: ast.Call) -> bool:
        if effect := self.effects.get(call):
            return effect.kind != "save" or self._is_given(effect.call)
        name = self.script.scopes.name(call.func)
        if name is not None:
            return name in READS or name.startswith("os.path.") or name == "builtins.open" or _is_error(name)
        match call.func:
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method in FILE_METHODS:
                return name in self.files
            case ast.Attribute(value=ast.Name() as owner, attr=method) if method in LOG_LEVELS:
                return self._is_logger(owner)
            case ast.Attribute(attr=method):
                return method in TEXT_METHODS
        return False

    def _is_given(self, call: CallSite) -> bool:
        """Whether what is saved is a parameter, or a display of parameters: it is whole where it was handed in."""
        saved = call.argument(0, "obj")
        return saved is not None and all(
            inner.id in self.parameters for inner in ast.walk(saved) if isinstance(inner, ast.Name)
        )


def _nodes(function: Function) -> Iterator[ast.AST]:
    """What a function is made of, behind its head."""
    for statement in function.body:
        yield from ast.walk(statement)


def _is_error(name: str) -> bool:
    return name.startswith("builtins.") and name.endswith(("Error", "Exception", "Warning"))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
