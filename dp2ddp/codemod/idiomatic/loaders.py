"""The loaders of a program, and the loops that go through them: followed from variable to variable by their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from dp2ddp.codemod.idiomatic.looking import calls_in, class_named, last_word, nodes_in
from dp2ddp.codemod.idiomatic.training import trains
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS
from dp2ddp.codemod.model.program import Program

LOADER = "torch.utils.data.DataLoader"
ITERABLE = "torch.utils.data.IterableDataset"
PASSING = ("iter", "enumerate", "tqdm", "trange", "zip", "cycle", "islice", "track", "progress_bar")
POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
AFTER = ("pin_memory", "drop_last")
DECIDE = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}  # what is in a batch

EVALUATES = re.compile(r"(^|_)(val|valid|validation|test|eval|dev)", re.IGNORECASE)
Key = int | str | None  # of a tuple or a dict in which the loader lies


@dataclass(frozen=True, eq=False)
class Loop:
    """Where batches are taken: a `for`, or the call of `next`; `shown` is the loader as it is written there."""

    module: Module
    node: ast.AST
    shown: ast.expr

    @cached_property
    def trains(self) -> bool:
        if isinstance(self.node, LOOPS):
            is_generator = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(self.node))
            return is_generator or trains(self.module, self.node)
        outer = (each for each in self.module.around(self.node) if isinstance(each, (*LOOPS, *FUNCTIONS)))
        return any(trains(self.module, each) for each in outer)


@dataclass(frozen=True, eq=False)
class FoundLoader:
    """A call that makes a DataLoader."""

    module: Module
    call: Call
    loops: list[Loop] = field(default_factory=list)

    def argument(self, name: str) -> ast.expr | None:
        """What is given, unless it is None."""
        given = self.call.argument((*POSITIONS, *AFTER).index(name), name)
        return None if isinstance(given, ast.Constant) and given.value is None else given

    @property
    def shuffles(self) -> bool:
        given = self.argument("shuffle")
        return given is not None and not (isinstance(given, ast.Constant) and not given.value)

    @property
    def target(self) -> str:
        """The last word of the variable that it is put into."""
        parent = self.module.parents[self.call.node]
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        return last_word(target)

    @property
    def trains(self) -> bool:
        """Whether a loop over it trains; of one that nobody is seen to go through, whether it shuffles.

        Where one loop trains and evaluates (`run(loader, is_training)`), the loaders that shuffle are those that train.
        """
        if not self.loops or EVALUATES.search(self.target):
            return self.shuffles and not EVALUATES.search(self.target)
        nodes = {loop.node for loop in self.loops if loop.trains}
        beside = [
            each for each in loaders_of(self.module.program) if any(loop.node in nodes for loop in each.loops)
        ]
        return bool(nodes) and (self.shuffles or not any(each.shuffles for each in beside))

    @property
    def refusal(self) -> str:
        """Why no share of its batches can be given out; empty where it can."""
        call, size = self.call, self.argument("batch_size")
        hidden = {
            word
            for each in call.node.keywords
            if each.arg is None
            for word in _words(self.module, each.value)
        }
        dataset = self.argument("dataset")
        if self.argument("sampler") is not None or self.argument("batch_sampler") is not None:
            return "its own sampler draws them; cut them by rank"
        if dataset is None or hidden & DECIDE:
            return "arguments that are not read here make them; give them sampler=DistributedSampler(dataset)"
        if size is None or isinstance(size, ast.Constant) and size.value == 1:
            return "one sample each; give each rank its share, sampler=DistributedSampler(dataset)"
        if _is_iterable(self.module, dataset):
            return "their data set iterates; let each rank take [rank::world_size] of what it yields"
        return ""

    @property
    def is_shared(self) -> bool:
        return self.trains and not self.refusal


def _words(module: Module, node: ast.expr) -> set[str]:
    """The words that `**kwargs` may give, as far as the file says them."""
    if not isinstance(node, ast.Name):
        return {str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)}
    scope = module.scope_of[node].lookup(node.id)
    values = [each.node for each in scope.bindings[node.id] if each.node] if scope else []
    nodes = [each for value in values for each in ast.walk(value)]
    constants = {
        each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    return constants | {each.arg for each in nodes if isinstance(each, ast.keyword) and each.arg}


def _is_iterable(module: Module, node: ast.AST) -> bool:
    """Whether a data set is made of a class that derives from IterableDataset."""
    made = node
    if isinstance(node, ast.Name) and (scope := module.scope_of[node].lookup(node.id)):
        values = [each.node for each in scope.bindings[node.id] if isinstance(each.node, ast.Call)]
        made = values[0] if len(values) == 1 else node
    name = module.name(made.func) if isinstance(made, ast.Call) else None
    home = class_named(module.program, name)
    return home is not None and any(home[0].name(base) == ITERABLE for base in home[1].bases)


@lru_cache(maxsize=8)
def loaders_of(program: Program) -> tuple[FoundLoader, ...]:
    """Every loader, with its loops."""
    loaders = [FoundLoader(module, call) for module, call in calls_in(program) if call.name == LOADER]
    for loader in loaders:
        _Following(program, loader).follow(loader.module, loader.call.node)
    return tuple(loaders)


class _Following:
    """Follows one loader."""

    def __init__(self, program: Program, loader: FoundLoader) -> None:
        self.program, self.loader = program, loader
        self.seen: set[tuple[object, Key]] = set()

    def follow(self, module: Module, node: ast.expr, key: Key = None, shown: ast.expr | None = None) -> None:
        """See what is done with an expression that is (or holds, under a key) the loader."""
        if (node, key) in self.seen:
            return
        self.seen.add((node, key))
        shown = shown or node
        parent = module.parents[node]
        match parent:
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) if iterated is node:
                if key is None:
                    self.loader.loops.append(Loop(module, parent, shown))
                else:
                    self._follow_target(module, parent.target, None)
            case ast.comprehension():
                pass
            case ast.Assign(targets=targets):
                for target in targets:
                    self._follow_target(module, target, key, shown if shown is not node else None)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                self._follow_target(module, target, key)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self.follow(module, parent, elements.index(node))
            case ast.Dict(keys=keys, values=values) if node in values:
                name = keys[values.index(node)]
                self.follow(module, parent, str(name.value) if isinstance(name, ast.Constant) else None)
            case ast.IfExp() | ast.Await() | ast.Starred():
                self.follow(module, parent, key)
            case ast.Subscript(value=value, slice=index) if value is node and key is not None:
                if not isinstance(index, ast.Constant) or str(index.value) == str(key):
                    self.follow(module, parent)
            case ast.Return():
                self._follow_calls(module, module.function_around(parent), key)
            case ast.Attribute(attr="values" | "items") if isinstance(module.parents[parent], ast.Call):
                self.follow(module, module.parents[parent], key)  # type: ignore[arg-type]
            case ast.keyword(arg=word):
                self._follow_argument(module, module.parents[parent], word, key, shown)  # type: ignore[arg-type]
            case ast.Call(args=arguments) if node in arguments:
                self._follow_argument(module, parent, arguments.index(node), key, shown)

    def _follow_target(
        self, module: Module, target: ast.expr, key: Key, shown: ast.expr | None = None
    ) -> None:
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if isinstance(key, int):
                if key < len(elements):
                    self._follow_target(module, elements[key], None)
            case ast.Tuple(elts=elements) if key is None:  # for name, loader in loaders.items()
                for element in elements:
                    self._follow_target(module, element, None)
            case ast.Name(id=name):
                scope = module.scope_of[target].lookup(name)
                self._follow_name(module, name, scope, key, shown)
            case ast.Attribute(attr=name):
                if (name, key) not in self.seen:
                    self.seen.add((name, key))
                    for each, node in nodes_in(self.program, ast.Attribute):
                        if node.attr == name and isinstance(node.ctx, ast.Load):
                            self.follow(each, node, key)
            case ast.Subscript(value=value, slice=ast.Constant(value=name)):
                self._follow_target(module, value, str(name))

    def _follow_name(
        self, module: Module, name: str, scope: object, key: Key, shown: ast.expr | None = None
    ) -> None:
        if (name, id(scope), key) in self.seen:  # type: ignore[comparison-overlap]
            return
        self.seen.add((name, id(scope), key))  # type: ignore[arg-type]
        for node in module.all(ast.Name):
            if (
                node.id == name
                and isinstance(node.ctx, ast.Load)
                and module.scope_of[node].lookup(name) is scope
            ):
                self.follow(module, node, key, shown)

    def _follow_argument(self, module: Module, call: ast.Call, place: Key, key: Key, node: ast.expr) -> None:
        called = call.func
        word = last_word(called)
        if word == "next":
            self.loader.loops.append(Loop(module, call, node))
        elif word in PASSING or word.lower().startswith("tqdm"):
            self.follow(module, call, key, node)
        elif word in ("append", "extend") and isinstance(called, ast.Attribute):
            self._follow_target(module, called.value, 0)
        for home, function in self._functions(word):
            arguments = function.args
            names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
            if (
                isinstance(called, ast.Attribute)
                and names[:1] == ["self"]
                or word == self._class_of(home, function)
            ):
                names = names[1:]
            names += [each.arg for each in arguments.kwonlyargs] if isinstance(place, str) else []
            name = place if isinstance(place, str) else names[place or 0] if (place or 0) < len(names) else ""
            inner = home.scope_of[function.body[0]]
            if name in inner.bindings:
                self._follow_name(home, name, inner, key)

    def _follow_calls(self, module: Module, function: ast.AST | None, key: Key) -> None:
        """The calls of a function that returns the loader."""
        name = getattr(function, "name", "")
        for each, call in calls_in(self.program):
            if name and name == last_word(call.node.func):
                self.follow(each, call.node, key)

    def _functions(self, word: str) -> Iterator[tuple[Module, ast.FunctionDef]]:
        """The functions that a call of this name may mean: also the `__init__` of a class."""
        for module, function in nodes_in(self.program, ast.FunctionDef):
            if word in (function.name, self._class_of(module, function)):
                yield module, function

    def _class_of(self, module: Module, function: ast.FunctionDef) -> str | None:
        parent = module.parents[function]
        is_init = isinstance(parent, ast.ClassDef) and function.name == "__init__"
        return parent.name if is_init else None  # type: ignore[attr-defined]
