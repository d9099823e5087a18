"""One file of a program: its tree, and what the expressions in it name."""

from __future__ import annotations

import ast
import builtins
import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from dp2ddp.codemod.model.nodes import FUNCTIONS, Function, Node, inside, is_static, last_name, places
from dp2ddp.codemod.model.positions import Positions
from dp2ddp.codemod.model.scopes import Binding, Binds, Reader, Scope
from dp2ddp.source.files import SourceFile
from dp2ddp.source.helper_module import is_helper_module, pasted_lines
from dp2ddp.source.parsing import parse

if TYPE_CHECKING:
    from dp2ddp.codemod.model.program import Program

Seen = frozenset[tuple[str, str, int]]  # of a name that is being followed: no circle is followed twice
IMPORTING = ("importlib.import_module", "builtins.__import__")


@dataclass(frozen=True, eq=False)
class Call:
    """A call, and the dotted name of what is called; None where it cannot be told."""

    node: ast.Call
    name: str | None

    @property
    def method(self) -> str:
        """`to_csv` of `frame.to_csv(...)`; empty for a plain name."""
        return self.node.func.attr if isinstance(self.node.func, ast.Attribute) else ""

    def argument(self, position: int | None, keyword: str | None = None) -> ast.expr | None:
        """What is given at a position or by a keyword; None too where `*` or `**` may bring it."""
        for given in self.node.keywords:
            if keyword is not None and given.arg == keyword:
                return given.value
        positional = [*takewhile(lambda each: not isinstance(each, ast.Starred), self.node.args)]
        return positional[position] if position is not None and position < len(positional) else None

    def keyword(self, name: str) -> ast.keyword | None:
        return next((given for given in self.node.keywords if given.arg == name), None)

    @property
    def may_have_more(self) -> bool:
        """Whether `*args` or `**kwargs` may bring arguments that are not seen here."""
        is_starred = any(isinstance(each, ast.Starred) for each in self.node.args)
        return is_starred or any(given.arg is None for given in self.node.keywords)

    @property
    def is_bare(self) -> bool:
        """Whether it is called without any argument."""
        return not self.node.args and not self.node.keywords


class Module(Reader):
    """A file that is started or imported."""

    def __init__(self, source: SourceFile, dotted: str, program: Program, package: tuple[str, ...]) -> None:
        self.source, self.dotted, self.program = source, dotted, program
        self.tree = _tree(source)
        self.positions = Positions(source.text)
        super().__init__(self.tree, package)
        self._names: dict[ast.AST | None, str | None] = {}

    @property
    def shown(self) -> str:
        """The path of the file as its owner would type it."""
        path = self.source.path
        return self.source.name if path is None else os.path.relpath(path)

    # --- nodes

    @cached_property
    def _by_kind(self) -> dict[type, list[ast.AST]]:
        kinds: dict[type, list[ast.AST]] = {}
        for node in self.in_order:
            kinds.setdefault(type(node), []).append(node)
        return kinds

    def all(self, kind: type[Node]) -> list[Node]:
        """All nodes of a kind, in the order of the text."""
        return self._by_kind.get(kind, [])  # type: ignore[return-value]

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of several kinds."""
        return (node for kind in kinds for node in self.all(kind))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        return tuple(map(self.call, self.all(ast.Call)))

    def call(self, node: ast.Call) -> Call:
        return Call(node, self.name(node.func))

    def call_of(self, node: ast.AST) -> Call | None:
        """The call of what a node names, where it is called there."""
        parent = self.parents.get(node)
        return self.call(parent) if isinstance(parent, ast.Call) and parent.func is node else None

    def calls_in(self, code: ast.AST | None) -> Iterator[Call]:
        """The calls in a piece of code of this file."""
        return map(self.call, inside(code, ast.Call))

    @cached_property
    def mentions(self) -> dict[str, list[ast.expr]]:
        """By dotted name, expressions that mean a thing itself (by `getattr`, too), not a variable that holds it."""
        mentions: dict[str, list[ast.expr]] = {}
        nodes = (*self.all(ast.Name), *self.all(ast.Attribute), *self.all(ast.Call), *self.all(ast.Subscript))
        for node in nodes:
            is_use = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
            if is_use and (name := self.name(node, follow=False)):
                mentions.setdefault(name, []).append(node)
        return mentions

    @cached_property
    def by_word(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Names and attributes, by what they are called."""
        words: dict[str, list[ast.Name | ast.Attribute]] = {}
        for name in self.all(ast.Name):
            words.setdefault(name.id, []).append(name)
        for attribute in self.all(ast.Attribute):
            words.setdefault(attribute.attr, []).append(attribute)
        return words

    # --- what is handed to functions

    def taken(self, function: ast.AST) -> list[ast.arg]:
        """The parameters by which a function takes arguments, one after the other; `self` is none of them."""
        is_method = isinstance(self.parents.get(function), ast.ClassDef)
        return places(function)[is_method and not is_static(function, "staticmethod") :]

    def parameter(self, function: Function, call: ast.Call, given: ast.AST) -> ast.arg | None:
        """The parameter by which a function of this file takes what a call gives it, an argument or a keyword."""
        taken = self.taken(function)
        if isinstance(given, ast.keyword):
            return next((each for each in (*taken, *function.args.kwonlyargs) if each.arg == given.arg), None)
        place = call.args.index(given) if given in call.args else len(taken)
        is_starred = any(isinstance(each, ast.Starred) for each in call.args[: place + 1])
        return taken[place] if place < len(taken) and not is_starred else function.args.vararg

    def given(self, function: ast.AST, call: Call, parameter: str) -> ast.expr | None:
        """What a call gives a parameter of a function of this file."""
        names = [each.arg for each in self.taken(function)]
        return call.argument(names.index(parameter) if parameter in names else None, parameter)

    def values(self, node: ast.AST | None) -> list[ast.AST]:
        """The expressions that a name is set to by `name = expression`; of another expression itself."""
        if not isinstance(node, ast.Name) or self.scope(node) is None:
            return [node] if node is not None else []
        return [each.node for each in self.bindings(node) if each.how is Binds.VALUE and each.node]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that a node stands in, from the inside."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def steps(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """The same, each with the part of it that the node is in."""
        for parent in self.around(node):
            yield parent, node
            node = parent

    def enclosing(self, node: ast.AST, *kinds: type[Node]) -> Node | None:
        """The innermost node of some kinds that a node stands in."""
        return next((each for each in self.around(node) if isinstance(each, kinds)), None)

    def function_around(self, node: ast.AST) -> Function | None:
        """The innermost function that a node stands in; None at module level (and in the body of a class there)."""
        return self.enclosing(node, *FUNCTIONS)  # type: ignore[return-value]

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that stand beside one, and itself."""
        blocks = (value for _, value in ast.iter_fields(self.parents[statement]) if isinstance(value, list))
        return next((block for block in blocks if statement in block), [statement])

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is, or stands in."""
        if isinstance(node, ast.stmt):
            return node
        return next(each for each in self.around(node) if isinstance(each, ast.stmt))

    def top_statement(self, node: ast.AST) -> ast.stmt:
        """The statement at module level that a node is, or stands in."""
        path = (node, *self.around(node))
        return next(each for each in path if isinstance(each, ast.stmt) and self.parents[each] is self.tree)

    def behind(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that follow one in its block."""
        block = self.block_of(statement)
        return block[block.index(statement) + 1 :]

    def ifs_above(self, node: ast.AST) -> list[ast.If]:
        """Those above a statement in its block: where one of them returns, the statement may not run."""
        if not isinstance(node, ast.stmt):
            return []
        block = self.block_of(node)
        return [each for each in block[: block.index(node)] if isinstance(each, ast.If)]

    def text(self, node: ast.AST) -> str:
        """A node as it is written."""
        return self.positions.source(node)

    def stands_there(self, node: ast.AST) -> bool:
        """Whether the text at a node's position is that node: before Python 3.12 not so inside of some f-strings."""
        try:
            parsed = ast.parse(f"({self.text(node)})", mode="eval").body
        except (SyntaxError, ValueError, IndexError):
            return False
        return ast.dump(parsed) == ast.dump(node)

    def never_runs(self, node: ast.AST) -> bool:
        """Whether a node stands behind `if False:`, or in the other branch of `if True:`."""
        for parent, child in self.steps(node):
            if isinstance(parent, (ast.If, ast.IfExp)) and isinstance(parent.test, ast.Constant):
                branch = parent.orelse if parent.test.value else parent.body
                if child in branch if isinstance(branch, list) else child is branch:
                    return True
        return False

    # --- values

    def value(self, node: ast.expr) -> ast.expr:
        """What a name stands for, where it has one value; any other expression itself."""
        seen: set[ast.expr] = set()
        while isinstance(node, ast.Name) and node not in seen:
            seen.add(node)
            match self.bindings(node):
                case [Binding(how=Binds.VALUE, node=ast.expr() as only)]:
                    node = only
        return node

    def scope(self, name: ast.Name) -> Scope | None:
        """The scope that a name belongs to."""
        return self.scope_of[name].lookup(name.id)

    def bindings(self, node: ast.Name) -> list[Binding]:
        """All that binds a name."""
        scope = self.scope(node)
        return scope.bindings[node.id] if scope else []

    def bindings_of(self, name: str) -> list[Binding]:
        """All that binds a name anywhere in this file."""
        return self.all_bindings.get(name, [])

    @cached_property
    def all_bindings(self) -> dict[str, list[Binding]]:
        """All that binds names, in whatever scope."""
        all_bindings: dict[str, list[Binding]] = {}
        for scope in {id(scope): scope for scope in self.scope_of.values()}.values():
            for name, bindings in scope.bindings.items():
                all_bindings.setdefault(name, []).extend(bindings)
        return all_bindings

    def texts(self, node: ast.expr) -> Iterator[str]:
        """The texts that an expression may be, as far as they are written: also one by one, in a loop over them."""
        value = self.value(node)
        match value:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name() if [each.how for each in self.bindings(value)] == [Binds.ITEM]:
                items = self.bindings(value)[0].node
                if isinstance(items, ast.Name):
                    items = self.value(items)
                if isinstance(items, (ast.List, ast.Tuple)):
                    yield from (text for item in items.elts for text in self.texts(item))

    def definition(self, node: ast.AST) -> tuple[Module, ast.AST] | None:
        """The function or class of the program that an expression names, and its file; `self.name` is a method."""
        match node:
            case ast.Name():
                for binding in reversed(self.bindings(node)):
                    if binding.how is Binds.DEFINITION and binding.node is not None:
                        return self, binding.node
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                owner = self.enclosing(node, ast.ClassDef)
                methods = owner.body if owner else []
                return next(((self, each) for each in methods if getattr(each, "name", None) == attr), None)
        return self.program.definition(self.name(node))

    def is_of_absent_file(self, node: ast.expr) -> bool:
        """Whether it is of a local module without a file: an extension that is built."""
        while isinstance(node, ast.Attribute):
            node = node.value
        bindings = self.bindings(node) if isinstance(node, ast.Name) else []
        return any(each.how is Binds.IMPORT and self.program.is_absent(each.dotted) for each in bindings)

    # --- names

    def name(self, node: ast.AST | None, *, follow: bool = True, seen: Seen = frozenset()) -> str | None:
        """The dotted name of what an expression means: "torch.nn.DataParallel"; None where it cannot be told.

        `follow`: also through `name = expression`; without it, a mention of the thing itself is asked for.
        """
        if not follow or seen:
            return self._find_name(node, follow, seen)
        if node not in self._names:  # asked again and again
            self._names[node] = self._find_name(node, follow, seen)
        return self._names[node]

    def _find_name(self, node: ast.AST | None, follow: bool, seen: Seen) -> str | None:
        if isinstance(node, ast.Name):
            return self._name_of(node, node.id, follow, seen)
        match node:
            case (
                ast.Attribute(value=whole, attr=part)
                | ast.Call(func=ast.Name(id="getattr"), args=[whole, ast.Constant(value=str(part)), *_])
            ):
                owner = self.name(whole, seen=seen)
                return self.program.canonical(f"{owner}.{part}", seen) if owner else None
        key = self.module_key(node, follow, seen)
        texts = [*self.texts(key)] if key is not None else []
        return texts[0] if len(texts) == 1 else None

    def module_key(
        self, node: ast.AST | None, follow: bool = True, seen: Seen = frozenset()
    ) -> ast.expr | None:
        """What a module is fetched by: `key` of `import_module(key)`, `sys.modules[key]`, `sys.modules.get(key)`."""
        match node:
            case (
                ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_])
                | ast.Subscript(value=table, slice=key)
            ) if last_name(table) == "modules":
                return key if self.name(table, follow=follow, seen=seen) == "sys.modules" else None
            case ast.Call(func=func) if self.name(func, follow=follow, seen=seen) in IMPORTING:
                return Call(node, None).argument(0, "name")
        return None

    def _name_of(self, node: ast.Name, name: str, follow: bool, seen: Seen) -> str | None:
        scope = self.scope_of[node].lookup(name)
        if scope is not None:
            return self.meaning(name, scope, follow=follow, seen=seen)
        if starred := self.program.starred(self, name, seen):
            return starred
        return f"builtins.{name}" if hasattr(builtins, name) else None

    def meaning(
        self, name: str, scope: Scope, *, follow: bool = True, seen: Seen = frozenset()
    ) -> str | None:
        """What a name of a scope is bound to: an import if there is one, a definition of the file, one value."""
        key = (self.dotted, name, id(scope))
        if key in seen:
            return None
        seen = seen | {key}
        bindings = scope.bindings[name]
        for binding in bindings:
            if binding.how is Binds.IMPORT:
                return self.program.canonical(binding.dotted, seen)
        if any(binding.how is Binds.DEFINITION for binding in bindings):
            return f"{self.dotted}.{name}" if scope is self.top else None
        if follow and len(bindings) == 1 and bindings[0].how is Binds.VALUE:
            return self.name(bindings[0].node, follow=follow, seen=seen)
        return None


def _tree(source: SourceFile) -> ast.Module:
    """The tree of a file; helpers, in a file of their own or pasted into it, have names, and nothing inside."""
    tree, pasted = parse(source), pasted_lines(source)
    is_whole = is_helper_module(source.text)
    if not pasted and not is_whole:
        return tree
    body = [_emptied(each) if is_whole or each.lineno in pasted else each for each in tree.body]
    return ast.Module(body, tree.type_ignores)


def _emptied(statement: ast.stmt) -> ast.stmt:
    if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return statement
    empty = copy.copy(statement)
    empty.body, empty.decorator_list = [], []
    return empty
