"""What objects are made by (a class of the project, a library, a literal), and which functions their calls may run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.call_graph import IMPLICIT, Part
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.tables import of

FRESH = {  # what a name stands for that is made here: nobody else has it
    *of("builtins", "list dict set"),
    *of("collections", "deque defaultdict OrderedDict Counter"),
}
BARS = ("progress.", "tqdm.", "rich.", "progressbar.")  # they show what their attributes are set to


class Makers:
    """What makes the objects of a project, as far as assignments tell."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.graph = modules.graph

    def functions(self, script: Script, call: ast.Call) -> Iterator[tuple[Script, ast.AST, bool]]:
        """The functions of the project that a call may run, and whether it makes an object."""
        for home, definition in self.modules.definitions(script, call.func):
            if isinstance(definition, ast.ClassDef):
                for place, kind in self.graph.bases_of((home, definition)):
                    yield from ((place, init, True) for init in named(kind, "__init__"))
        functions = [
            part
            for part in self.graph.means(script, call.func)
            if getattr(part[1], "name", "") not in IMPLICIT
        ]
        if not functions and isinstance(call.func, ast.Attribute) and script.scopes.name(call.func) is None:
            functions = self._methods_of(script, call.func)
        elif not functions and isinstance(call.func, ast.Name):
            made = self.class_of(script, call.func) or ()
            functions = [(home, node) for home, kind in made for node in named(kind, "__call__")]
        yield from ((home, item, False) for home, item in functions)

    def _methods_of(self, script: Script, func: ast.Attribute) -> list[Part]:
        """A method of the object's class; where that is not known, every method of the name."""
        made = self.class_of(script, func.value)
        if made is not None:
            return [(home, node) for home, kind in made for node in named(kind, func.attr)]
        if self.is_foreign(script, func.value):
            return []
        call = script.scopes.parents[func]
        assert isinstance(call, ast.Call)
        return [part for part in self.methods_named(func.attr) if _takes(part[1], call)]

    def class_of(self, script: Script, node: ast.AST) -> list[Part] | None:
        """The class of the project that an object is of, with its bases; None: not known."""
        makers = self._makers(script, node)
        home, made = makers[0] if len(makers) == 1 else (script, None)
        definition = self.modules.definition(home, made.func) if isinstance(made, ast.Call) else None
        return (
            list(self.graph.bases_of(definition))
            if definition and isinstance(definition[1], ast.ClassDef)
            else None
        )

    def is_foreign(self, script: Script, node: ast.AST) -> bool:
        """Whether an object is made here by something that is not the project's, or is a literal."""
        makers = self._makers(script, node)
        if isinstance(node, ast.Subscript) and not makers:
            return all(
                _makes_defaults(*maker) for maker in self._makers(script, node.value) or [(script, None)]
            )
        return bool(makers) and all(self._makes_foreign(*maker) for maker in makers)

    def _makes_foreign(self, script: Script, made: ast.AST | None) -> bool:
        if isinstance(made, ast.Call):
            return bool(script.scopes.name(made.func)) and not self.modules.definitions(script, made.func)
        return isinstance(made, (ast.List, ast.Dict, ast.Set, ast.Constant))

    def _makers(self, script: Script, node: ast.AST) -> list[tuple[Script, ast.AST | None]]:
        """What an object may be made by: the values of its name, of an attribute, of the items of a container."""
        if isinstance(node, ast.Name):
            values = _given(script, node)
            return (
                [(script, value) for value in values] if len(values) > 1 else [(script, _made(script, node))]
            )
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = script.scopes.owner_class(node)
            family = {relative for _, relative in self.graph.related((script, owner))} if owner else set()
            attributes = [
                (home, inner)
                for home, inner in self.graph.stores.get(node.attr, ())
                if not is_self(inner.value) or home.scopes.owner_class(inner) in family
            ]
            return [
                (home, _value_of(home, attribute))
                for home, attribute in attributes
                if not _is_added_to(home, attribute)
            ]
        if isinstance(node, ast.Subscript):
            text = script.text_of(node.value)
            items = (node for node in script.nodes(ast.Subscript) if isinstance(node, ast.Subscript))
            stored = [
                item
                for item in items
                if isinstance(item.ctx, ast.Store) and script.text_of(item.value) == text
            ]
            return [(script, _value_of(script, store)) for store in stored]
        return []

    def is_dict(self, script: Script, node: ast.AST) -> bool:
        """Whether it is a dict, no text: `**kwargs`, or made as one."""
        if isinstance(node, ast.Name) and node.id in _rest_of(script, node)[1:]:
            return True
        makers = self._makers(script, node)
        return bool(makers) and all(_makes_dict(*maker) for maker in makers)

    def is_list(self, script: Script, node: ast.AST) -> bool:
        """Whether it is a list, no text, as long as it was made: `val = val if ... else [val]`."""
        values = _given(script, node) if isinstance(node, ast.Name) else []
        lists = [value for value in values if isinstance(value, (ast.List, ast.Tuple))]
        return bool(lists) and all(value is None or value in lists for value in values)

    def is_fresh(self, script: Script, holder: ast.Name | ast.Attribute) -> bool:
        """Whether it is a container that nobody else has by another name."""
        if isinstance(holder, ast.Name) and holder.id in _rest_of(script, holder):
            return True
        makers = self._makers(script, holder)
        return bool(makers) and all(self._makes_foreign(*maker) or _is_display(maker[1]) for maker in makers)

    def is_made_here(self, script: Script, node: ast.expr) -> bool:
        """Whether all that has the object has it by this name: classes are called for it, and nothing else."""
        makers = self._makers(script, node)
        return bool(makers) and all(self._makes_foreign(*maker) or self.makes_own(*maker) for maker in makers)

    def makes_own(self, script: Script, made: ast.AST | None) -> bool:
        """Whether it is a call of a class of the project."""
        definition = self.modules.definition(script, made.func) if isinstance(made, ast.Call) else None
        return definition is not None and isinstance(definition[1], ast.ClassDef)

    def methods_named(self, name: str) -> Iterator[Part]:
        """The methods of a name, of all classes."""
        for script in self.modules.scripts:
            yield from ((script, node) for node in script.methods_by_name.get(name, ()))

    def is_bar(self, script: Script, node: ast.Name) -> bool:
        """Whether it is a library's progress bar."""
        made = _made(script, node)
        return isinstance(made, ast.Call) and (script.scopes.name(made.func) or "").startswith(BARS)


def _rest_of(script: Script, name: ast.Name) -> tuple[str, str]:
    """The names of the parameters `*args` and `**kwargs` of the function that a name belongs to."""
    arguments = getattr(script.variable(name)[0], "args", None)
    rest = (arguments.vararg, arguments.kwarg) if arguments else (None, None)
    return rest[0].arg if rest[0] else "", rest[1].arg if rest[1] else ""


def _is_added_to(script: Script, target: ast.AST) -> bool:
    """`self.sum += n`: the object stays what it was made as."""
    return isinstance(script.scopes.parents[target], ast.AugAssign)


def _is_display(node: ast.AST | None) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and (
            _is_display(node.left) or _is_display(node.right)
        )  # [0] * n
    return isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp))


def _given(script: Script, name: ast.Name) -> list[ast.expr | None]:
    """The expressions that a variable is set to; None: what is not told by one (a parameter, a loop)."""
    scope, word = variable = script.variable(name)
    arguments = getattr(scope, "args", None)
    values: list[ast.expr | None] = [
        None for node in (ast.walk(arguments) if arguments else ()) if _is_arg(node, word)
    ]
    for mention in script.by_word.get(word, ()):
        if (
            isinstance(mention, ast.Name)
            and not isinstance(mention.ctx, ast.Load)
            and script.variable(mention) == variable
        ):
            values.append(_assigned(script, mention))
    return values


def _is_arg(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.arg) and node.arg == name


def _assigned(script: Script, target: ast.Name) -> ast.expr | None:
    """What one assignment gives to a name, also where it unpacks: `a, b = A(), B()`."""
    around = script.scopes.parents[target]
    if isinstance(around, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        return around.value
    assignment = script.scopes.parents[around]
    if isinstance(around, ast.Tuple) and isinstance(assignment, ast.Assign):
        value = assignment.value
        if isinstance(value, ast.Tuple) and len(value.elts) == len(around.elts):
            return value.elts[around.elts.index(target)]
    return None


def _value_of(script: Script, target: ast.AST) -> ast.expr | None:
    """What an assignment gives to an attribute or an item."""
    around = script.scopes.parents[target]
    return around.value if isinstance(around, (ast.Assign, ast.AnnAssign)) else None


def _made(script: Script, node: ast.AST) -> ast.AST | None:
    """What an object is made by: the one value of its name."""
    if not isinstance(node, ast.Name):
        return node
    values = _given(script, node)
    return values[0] if len(values) == 1 and values[0] is not None else script.scopes.value(node)


def _makes_dict(script: Script, made: ast.AST | None) -> bool:
    is_made = isinstance(made, ast.Call) and script.scopes.name(made.func) in FRESH
    return is_made or isinstance(made, ast.Dict)


def _makes_defaults(script: Script, made: ast.AST | None) -> bool:
    """`defaultdict(dict)`: its items are made by a builtin."""
    if not isinstance(made, ast.Call) or script.scopes.name(made.func) != "collections.defaultdict":
        return False
    return bool(made.args) and (script.scopes.name(made.args[0]) or "").startswith("builtins.")


def _takes(method: ast.AST, call: ast.Call) -> bool:
    """Whether a method can be called so: not with fewer arguments than it needs, nor with more than it has."""
    assert isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        return True
    given, arguments = len(call.args) + len(call.keywords), method.args
    most = len(arguments.posonlyargs) + len(arguments.args) - 1
    fits = len(call.args) <= most or arguments.vararg is not None
    return fits and given >= most - len(arguments.defaults)


def named(owner: ast.AST, name: str) -> Iterator[ast.AST]:
    yield from (
        node for node in getattr(owner, "body", ()) if isinstance(node, Function) and node.name == name
    )


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
