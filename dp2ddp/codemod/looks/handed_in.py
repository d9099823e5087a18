"""What functions that run in forwards are handed that outlives a forward: it comes to their parameters."""

import ast

from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL
from dp2ddp.codemod.knowledge.reading_methods import FILLING, READING
from dp2ddp.codemod.looks.called import functions_named, is_autograd_function, methods_by_text
from dp2ddp.codemod.looks.sharing import Sharing
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, Function
from dp2ddp.codemod.model.program import Program

FILLED_LATER = ("builtins.list", "builtins.dict", "builtins.set", "collections.", "types.SimpleNamespace")
HOLDING = ("torch.nn.Sequential", "torch.nn.Module", DATA_PARALLEL)  # layers that are not seen here
BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.ExceptHandler)


class HandedIn:
    """Tells `sharing` of the parameters that somebody hands something shared."""

    def __init__(self, program: Program, sharing: Sharing) -> None:
        self.program, self.sharing = program, sharing
        self._seen: set[tuple[ast.AST, int | str | None]] = set()

    def to_model(self, module: Module, call: Call) -> None:
        """What a call that may be a model's gives, and all replicas have, as they have no copy of it."""
        for place, given in _given_by(call.node) if self._may_be_model(call) else ():
            is_empty = any(self._is_filled_later(module, each) for each in module.values(given))
            if is_empty and not _is_filled_above(module, given):
                self.to(module, call.node.func, place)

    def by_call(self, module: Module, node: ast.Call, *, runs: bool) -> None:
        """What a call gives that is shared: to the function that it calls, and to those that it gives, too."""
        given = _given_by(node)
        shared = [place for place, value in given if self.sharing.level(module, value)]
        for place in shared if runs else ():
            self.to(module, node.func, place)
        # `map(f, items)`, `checkpoint(self.block, x)`: to any parameter
        for _, value in given if shared else ():
            is_method = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
            if is_method or isinstance(value, (ast.Name, ast.Lambda)):
                self.to(module, value, None)

    def to(self, module: Module, node: ast.expr, place: int | str | None) -> None:
        """Something shared is given to a function, at a place or by a keyword; or it may be anywhere."""
        if (node, place) in self._seen:
            return
        self._seen.add((node, place))
        own: list[tuple[Module, Function]] = [(module, node)] if isinstance(node, ast.Lambda) else []
        functions = [*own, *functions_named(module, node), *methods_by_text(module, node)]
        applied = self.program.class_named((module.name(node) or "").removesuffix(".apply"))
        if applied and is_autograd_function(*applied):  # whose forward gets the context first
            functions = [*self.program.methods_of(*applied, "forward")]
            place = place + 1 if isinstance(place, int) else place
        is_method = isinstance(node, ast.Attribute) and (
            node.attr in READING | FILLING or node.attr[:2] == "__"
        )
        is_unknown = module.name(node) is None and not module.is_of_absent_file(node)
        if not functions and place is not None and is_unknown and not is_method:
            functions = self._forwards_of(node)
        for home, function in functions:
            rest = (function.args.vararg, *function.args.kwonlyargs, function.args.kwarg)
            names = [each.arg for each in (*home.taken(function), *rest) if each]
            if isinstance(place, int):
                names = names[place : place + 1] or names[-1:]
            elif isinstance(place, str):
                names = [place] if place in names else names[-1:]
            self.sharing.parameters |= {(function, name) for name in names}

    def _forwards_of(self, node: ast.expr) -> list[tuple[Module, Function]]:
        """The forwards that `self.layer(...)` may call: those of the classes that it is set to, or all."""
        methods = self.program.methods_named
        named = [*methods.get("forward", ()), *methods.get("__call__", ())]
        forwards = [
            (home, each) for home, each in named if not is_autograd_function(home, home.parents[each])
        ]
        values = self.program.attributes.get(getattr(node, "attr", ""), [])
        own: set[ast.AST] = set()
        for module, binding in values:
            kind = module.name(binding.node.func) or "" if isinstance(binding.node, ast.Call) else ""
            made = self.program.class_named(kind)
            if made is None and (not kind.startswith("torch.nn.") or kind.startswith(HOLDING)):
                return forwards
            own |= {made[1]} if made else set()
        return [(home, each) for home, each in forwards if not values or home.parents[each] in own]

    def _may_be_model(self, call: Call) -> bool:
        """`net(x)`, `self.net(x)`: of a variable, or of an attribute that the program sets."""
        is_set = call.method in self.program.attributes and call.method not in self.program.methods_named
        return call.name is None and (isinstance(call.node.func, ast.Name) or is_set)

    def _is_filled_later(self, module: Module, value: ast.AST, *, deep: bool = True) -> bool:
        """An empty list, an object: what a replica may fill."""
        match value:
            case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(func=ast.Attribute(attr="parse_args")):
                return True
            case ast.Call(func=func):
                name = module.name(func) or ""
                if name.startswith(FILLED_LATER) or self.program.class_named(name):
                    return True
                factories = functions_named(module, func) if isinstance(func, ast.Name) and deep else []
                return any(
                    self._is_filled_later(home, each, deep=False)
                    for home, factory in factories
                    for returned in self.sharing.returned_by(factory)
                    for each in home.values(returned)
                )
        return False


def _is_filled_above(module: Module, node: ast.expr) -> bool:
    """Whether a list surely has something in it: `parts.append(x)` stands above, in no branch."""
    appends = (each for each in module.by_word.get("append", ()) if isinstance(each, ast.Attribute))
    return any(
        ast.dump(each.value) == ast.dump(node)
        and each.lineno < node.lineno
        and module.enclosing(each, *FUNCTIONS, *BRANCHES) is module.function_around(node)
        for each in appends
    )


def _given_by(call: ast.Call) -> list[tuple[int | str | None, ast.expr]]:
    """What a call gives, with places and keywords."""
    return [*enumerate(call.args), *((each.arg, each.value) for each in call.keywords)]
