"""Where code runs: in the main flow of the script, inside a model's forward, or in a loader's worker.

Every rank walks the main flow in the same order, so ranks may meet there. A forward runs on a rank's own rows
(or not at all, on a rank without rows), and a data set runs in worker processes: there they must not meet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import Script

Function = ast.FunctionDef | ast.AsyncFunctionDef

MODULES = ("torch.nn.Module", "torch.nn.Sequential", "torch.autograd.Function", "torch.nn.ModuleList")
DATA_SETS = (
    "torch.utils.data.Dataset",
    "torch.utils.data.IterableDataset",
    "torch.utils.data.TensorDataset",
    "torch.utils.data.Subset",
    "torch.utils.data.ConcatDataset",
)
DATA_SET_ROOTS = ("torchvision.datasets.", "datasets.")
WORKER_METHODS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")
POOLS = (".Pool", ".ThreadPool", ".ThreadPoolExecutor", ".ProcessPoolExecutor")
POOL_METHODS = {
    *("submit", "map", "imap", "imap_unordered", "starmap", "apply", "apply_async", "map_async"),
    *("starmap_async",),
}
WORKER_ARGUMENTS = ("collate_fn", "worker_init_fn")


class Place(Enum):
    MAIN = "the main flow"
    FORWARD = "the forward of a model"
    WORKER = "a data set, which worker processes read"
    THREAD = "a thread"


class Places:
    """The place of every node of a project's files."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.find = modules.definition
        self.kinds: dict[ast.AST, str | None] = {}
        self.reached: dict[ast.ClassDef, set[str]] = {}
        self.parts: dict[Script, dict[str, list[ast.Call]]] = {}
        self.functions = {
            function: place
            for script in modules.scripts
            for function, place in {
                **self._worker_functions(script),
                **self._thread_functions(script),
            }.items()
        }
        self._spread()

    def _spread(self) -> None:
        """Functions that a forward or a data set calls run where that one runs."""
        found = True
        while found:
            found = False
            for script in self.modules.scripts:
                for call in script.calls:
                    found |= self._spread_to_called(script, call.node)

    def _spread_to_called(self, script: Script, call: ast.Call) -> bool:
        """Whether something was found out about what a call runs."""
        called = [*self.modules.definitions(script, call.func), *self._methods(script, call.func)]
        found = [one for _, one in called if isinstance(one, Function)]
        found = [one for one in found if one not in self.functions]
        place = self._of(script, call) if found else Place.MAIN
        self.functions |= {one: place for one in found if place is not Place.MAIN}
        return bool(found) and place is not Place.MAIN

    def _methods(self, script: Script, function: ast.expr) -> Iterator[tuple[Script, ast.AST]]:
        """`self.schedule.step`, where `self.schedule = Schedule(...)` makes an object of the script's own."""
        match function:
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part), attr=method):
                for made in self._parts(script).get(part, ()):
                    owner = self.find(script, made.func)
                    for one in getattr(owner[1], "body", ()) if owner else ():
                        if owner and isinstance(one, Function) and one.name == method:
                            yield owner[0], one

    def _parts(self, script: Script) -> dict[str, list[ast.Call]]:
        """What calls make the attributes of a file's objects."""
        if script not in self.parts:
            found = self.parts[script] = {}
            for node in script.nodes(ast.Assign):
                assert isinstance(node, ast.Assign)
                for target in node.targets if isinstance(node.value, ast.Call) else ():
                    if isinstance(target, ast.Attribute) and isinstance(node.value, ast.Call):
                        found.setdefault(target.attr, []).append(node.value)
        return self.parts[script]

    def of(self, node: ast.AST) -> Place:
        script = self.modules.home.get(node)
        return self._of(script, node) if script else Place.MAIN

    def _of(self, script: Script, node: ast.AST) -> Place:
        scope = script.scopes.scope_of.get(node)
        while scope:
            if isinstance(scope.node, Function):
                place = self._of_function(script, scope.node)
                if place is not Place.MAIN:
                    return place
            scope = scope.parent
        return Place.MAIN

    def _of_function(self, script: Script, function: Function) -> Place:
        if function in self.functions:
            return self.functions[function]
        owner = script.scopes.parents.get(function)
        if not isinstance(owner, ast.ClassDef):
            return Place.MAIN
        kind = self.kind(owner)
        if kind is None or function.name not in self._reached(owner):
            return Place.MAIN
        return Place.FORWARD if kind == "module" else Place.WORKER

    def kind(self, node: ast.ClassDef) -> str | None:
        """ "module", "data set" or None, by the bases of a class and theirs."""
        script = self.modules.home.get(node)
        return self._kind(script, node) if script else None

    def _kind(self, script: Script, node: ast.ClassDef) -> str | None:
        if node not in self.kinds:
            self.kinds[node] = None  # bases in a circle end here
            kinds = (self._kind_of_base(script, base) for base in node.bases)
            self.kinds[node] = next(filter(None, kinds), None)
        return self.kinds[node]

    def _kind_of_base(self, script: Script, base: ast.expr) -> str | None:
        found = self.find(script, base)
        if found and isinstance(found[1], ast.ClassDef):
            return self._kind(found[0], found[1])
        name = script.scopes.name(base) or ""
        if name in MODULES or name.startswith("torch.nn."):
            return "module"
        if name in DATA_SETS or name.startswith(DATA_SET_ROOTS):
            return "data set"
        return None

    def _reached(self, owner: ast.ClassDef) -> set[str]:
        """The methods that forward or __getitem__ call, directly or through others, on self."""
        methods = {
            one.name: one for one in owner.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        if owner in self.reached:
            return self.reached[owner]
        roots = ("forward",) if self.kind(owner) == "module" else WORKER_METHODS
        reached, queue = set(roots), [methods[root] for root in roots if root in methods]
        while queue:
            for name in _self_calls(queue.pop()):
                if name in methods and name not in reached:
                    reached.add(name)
                    queue.append(methods[name])
        self.reached[owner] = reached
        return reached

    def _worker_functions(self, script: Script) -> dict[ast.AST, Place]:
        """Functions handed to a DataLoader as collate_fn or worker_init_fn."""
        return self._handed_over(script, WORKER_ARGUMENTS, Place.WORKER, None)

    def _thread_functions(self, script: Script) -> dict[ast.AST, Place]:
        """Functions handed to a thread or a process as its target."""
        found = self._handed_over(script, ("target",), Place.THREAD, ("Thread", "Process", "Timer"))
        if any((call.name or "").endswith(POOLS) for call in script.calls):
            given = (call.argument(0) for call in script.calls if call.method in POOL_METHODS)
            functions = (self.modules.definitions(script, one) for one in given if one is not None)
            found |= {one: Place.THREAD for each in functions for _, one in each}
        return found

    def _handed_over(
        self, script: Script, keywords: tuple[str, ...], place: Place, receivers: tuple[str, ...] | None
    ) -> dict[ast.AST, Place]:
        found: dict[ast.AST, Place] = {}
        for call in script.calls:
            receiver = call.method or (call.name or "").rpartition(".")[2]
            if receivers and receiver not in receivers:
                continue
            for keyword in call.node.keywords:
                if keyword.arg in keywords:
                    found |= {one: place for _, one in self.modules.definitions(script, keyword.value)}
        return found


def _self_calls(function: ast.AST) -> set[str]:
    return {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }
