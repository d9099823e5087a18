"""One file, read alone: what is asked of its names, words and places beside what the model says of every file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import takewhile

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import DEFINITIONS, FUNCTIONS, LOOPS, NAMED_FUNCTIONS, Node, handed, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.plans.acceptance import Comments
from dp2ddp.source.files import SourceFile
from dp2ddp.source.helper_module import IMPORTED, pasted_lines
from dp2ddp.source.projects import Project

# Where the file stands: in packages of no name, so that what it imports from beside it is none of a library.
ALONE = "_._._._._._.file"
SETTINGS = words("args opt opts cfg config conf options hparams hps params FLAGS")
SPAWNS = words(
    "torch.multiprocessing.spawn torch.multiprocessing.start_processes torch.multiprocessing.Process",
    "torch.multiprocessing.spawn.spawn torch.multiprocessing.spawn.start_processes multiprocessing.Process",
)
GIVEN = (Binds.VALUE, Binds.PARAMETER, Binds.IMPORT)
ONE_WORD = re.compile(r"\S+")
Variable = tuple[ast.AST | None, str]
Mention = ast.Name | ast.Attribute
Named = ast.FunctionDef | ast.AsyncFunctionDef


class OwnFile:
    """A file whose imports are not followed."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.module = Program(Project(source, entry_module=ALONE)).entry
        self.comments = Comments(self.module)
        self._pasted = pasted_lines(source)
        self._texts: dict[ast.AST, str] = {}

    # --- names

    def calls_of(self, *names: str) -> Iterator[Call]:
        """All calls of functions with these dotted names."""
        return (call for call in self.module.calls if call.name in names)

    def definition(self, node: ast.AST) -> ast.AST | None:
        """The function or class of this file that a plain name means."""
        found = self.module.definition(node) if isinstance(node, ast.Name) else None
        return found[1] if found else None

    def helper(self, function: ast.AST) -> str:
        """The helper of dp2ddp that an expression names; "" if it is none."""
        name = self.module.name(function) or ""
        if name.startswith(IMPORTED):
            return name.rpartition(".")[2]
        definition = self.definition(function)
        is_pasted = getattr(definition, "lineno", 0) in self._pasted
        return getattr(definition, "name", "").rstrip("_") if is_pasted else ""  # a taken name got a _

    def values(self, node: ast.AST | None) -> list[ast.AST]:
        """The expressions that a name may stand for, wherever they come from; no names that nobody gives a value."""
        return [
            each for each in self.origins(node) if not isinstance(each, Mention) or self.module.name(each)
        ]

    def made_by(self, node: ast.AST | None) -> list[Call]:
        """The calls whose results a name may stand for."""
        return [self.module.call(each) for each in self.values(node) if isinstance(each, ast.Call)]

    def all_values(self, node: ast.AST | None) -> list[ast.AST]:
        """All that a name is given, names of nobody's too; nothing of one that a loop or `+=` sets as well."""
        bindings = self.module.program.bindings(self.module, node) if node else []
        stores = self.mentions(self.variable(node), ast.Store) if isinstance(node, Mention) else []
        is_changed = any(isinstance(self.module.parents[each], ast.AugAssign) for each in stores)
        are_seen = not is_changed and all(each.how in GIVEN for _, each in bindings)
        return [each for each in self.origins(node) if are_seen and each is not node]

    def origins(self, node: ast.AST | None) -> list[ast.expr]:
        """The same, with the names that nobody gives a value."""
        origins = self.module.program.flow.origins(self.module, node) if isinstance(node, ast.expr) else ()
        return [each for _, each in origins]

    def variable(self, node: ast.AST) -> Variable:
        """What a name, an attribute or an item means: two mentions of one thing have equal variables.

        A plain name is told apart by the function (or the file) that binds it. Attributes of one name count as
        one, whoever's they are, but for those of what a command line is usually kept in (`args.model`).
        """
        if isinstance(node, ast.Name):
            scope = self.module.scope(node)
            return scope.node if scope else None, node.id
        is_setting = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in SETTINGS
        if isinstance(node, ast.Attribute) and not is_setting:
            return None, f".{node.attr}"
        return None, self.text_of(node)

    def mentions(self, variable: Variable, *contexts: type[ast.expr_context]) -> list[Mention]:
        """Where a variable stands, by what is done to it there."""
        words = self.module.by_word.get(variable[1].lstrip("."), ())
        return [each for each in words if isinstance(each.ctx, contexts) and self.variable(each) == variable]

    def reads(self, target: ast.AST | None) -> list[Mention]:
        """Where the variable of a target, or of another mention of it, is read."""
        return self.mentions(self.variable(target), ast.Load) if isinstance(target, Mention) else []

    def text_of(self, node: ast.AST) -> str:
        """An expression in one spelling (`ast.unparse`, remembered: it is the slowest question there is)."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self.text_of(node.value)}.{node.attr}"
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    # --- words, of the code alone: no comment and no sentence is one

    @cached_property
    def words(self) -> frozenset[str]:
        """What the code calls things, parts of imported names, and texts of one word (`"--drop-last"`, `"RANK"`)."""
        module = self.module
        imported = [each.module or "" for each in module.all(ast.ImportFrom)]
        imported += (path for each in module.all(ast.alias) for path in (each.name, each.asname or ""))
        given = (
            getattr(each, "arg", "") or "" for each in module.nodes(ast.keyword, ast.arg)
        )  # `**options`: none
        defined = (getattr(each, "name", "") for each in module.nodes(*DEFINITIONS))
        constants = (each for each in module.all(ast.Constant) if isinstance(each.value, str))
        texts = (str(each.value) for each in constants if not isinstance(module.parents[each], ast.Expr))
        parts = ".".join(imported).split(".")
        return frozenset((*module.by_word, *given, *defined, *parts, *filter(ONE_WORD.fullmatch, texts)))

    @cached_property
    def imports(self) -> frozenset[str]:
        """The full names of all that is imported, wherever."""
        bound = (each for found in self.module.all_bindings.values() for each in found)
        return frozenset((*(each.dotted for each in bound if each.how is Binds.IMPORT), *self.module.stars))

    def says(self, word: re.Pattern[str]) -> bool:
        """Whether a name or a text of one word has this in it."""
        return any(map(word.search, self.words))

    # --- places

    def around(self, node: ast.AST, kind: type[Node]) -> Iterator[Node]:
        """The nodes of a kind that a node stands in, from the inside."""
        return (each for each in self.module.around(node) if isinstance(each, kind))

    def within(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, within its function."""
        return takewhile(lambda each: not isinstance(each, FUNCTIONS), self.module.around(node))

    def part_of(self, node: ast.AST) -> ast.AST | None:
        """What a node is a part of, next; of a call by keyword, too."""
        return next((each for each in self.module.around(node) if not isinstance(each, ast.keyword)), None)

    def loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node, within its function."""
        return next((each for each in self.within(node) if isinstance(each, LOOPS)), None)

    def turn_of(self, node: ast.AST) -> ast.AST:
        """What runs again with a node: the innermost loop around it, or its function."""
        return self.loop_around(node) or self.function_of(node)

    def function_of(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the module; defaults and decorators stand in what is around theirs."""
        scope = self.module.scope_of[node]
        while scope.outer is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.outer
        return scope.node

    def other_branch(self, condition: ast.AST, node: ast.AST) -> list[ast.stmt]:
        """What of an `if` around a node does not run where the node does."""
        around = {node, *self.module.around(node)}
        branches = (condition.body, condition.orelse) if isinstance(condition, ast.If) else ()
        return [each for branch in branches if around.isdisjoint(branch) for each in branch]

    # --- calls of its functions

    def sites_of(self, function: ast.AST) -> list[Mention]:
        """Where a function of this file is called or handed on (`mp.spawn(main_worker)`), or may be."""
        if not isinstance(function, NAMED_FUNCTIONS):
            return []
        owner, name = self.module.parents[function], function.name
        if not isinstance(owner, ast.ClassDef) or name == "__init__":
            return self.mentions_of(owner if isinstance(owner, ast.ClassDef) else function)
        if name.startswith("__") or len(self.module.program.methods_named.get(name, ())) > 1:
            return []  # called in ways that are not seen, or not told apart
        # `torch.save` is no method of the file's own
        return [each for each in self._read(name, ast.Attribute) if self.module.name(each) is None]

    def mentions_of(self, definition: ast.AST) -> list[Mention]:
        """Where a function or class of this file is named."""
        names = self._read(getattr(definition, "name", ""), ast.Name)
        return [each for each in names if self.definition(each) is definition]

    def _read(self, word: str, kind: type[Mention]) -> list[Mention]:
        words = self.module.by_word.get(word, ())
        return [each for each in words if isinstance(each, kind) and isinstance(each.ctx, ast.Load)]

    def callee(self, call: ast.AST | None) -> Named | None:
        """The function of this file that a call runs for certain: by its name, of a class `__init__`, of `x.step` the
        method where `x` is `self`, or is made here.
        """
        if not isinstance(call, ast.Call):
            return None
        called = self.module.program.called(self.module, call.func)
        if called or not isinstance(call.func, ast.Attribute):
            return called[1] if called and isinstance(called[1], NAMED_FUNCTIONS) else None
        made = self.module.program.flow.makers(self.module, call.func.value)
        kinds = {self.definition(each) for _, each in made}
        if last_name(call.func.value) == "self":
            kinds = {self.module.enclosing(call, ast.ClassDef)}
        kind = kinds.pop() if len(kinds) == 1 else None
        methods = self.module.program.methods_of(self.module, kind, call.func.attr)
        return next((method for _, method in methods), None)

    def given(self, call: ast.AST | None, function: ast.AST | None = None) -> list[tuple[Variable, ast.expr]]:
        """The parameters of a function of this file, the one that a call runs for certain, with what it gives them."""
        function = function or self.callee(call)
        if not isinstance(call, ast.Call) or not isinstance(function, NAMED_FUNCTIONS):
            return []
        given = ((self.module.parameter(function, call, each), value) for each, value in handed(call))
        one = ((taken, value) for taken, value in given if taken and taken is not function.args.vararg)
        return [((function, taken.arg), value) for taken, value in one]

    @cached_property
    def spawns(self) -> tuple[Call, ...]:
        """The calls that start processes of the script's own."""
        return tuple(self.calls_of(*SPAWNS))

    @cached_property
    def started(self) -> set[Named]:
        """The functions that these processes run."""
        handed = {node for spawn in self.spawns for node in ast.walk(spawn.node)}
        functions = self.module.all(ast.FunctionDef) if handed else []
        return {each for each in functions if not handed.isdisjoint(self.sites_of(each))}


def walk_without(node: ast.AST, leaves_out: Callable[[ast.AST, ast.AST], bool]) -> Iterator[ast.AST]:
    """The nodes of an expression, without parts that are left out (asked with what they are parts of)."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not leaves_out(child, node):
            yield from walk_without(child, leaves_out)


def unmoved(node: ast.AST | None) -> ast.AST | None:
    """`net` of `net.cuda()` and `net.to(device)`."""
    while isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("cuda", "to"):
        node = node.func.value  # type: ignore[attr-defined]
    return node


def literal(node: ast.AST | None) -> object:
    """The value of a literal expression, or None."""
    try:
        value: object = ast.literal_eval(node or ast.Constant(None))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value
