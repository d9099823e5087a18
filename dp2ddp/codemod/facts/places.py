"""Where code runs: in the main flow of the script, inside a model's forward, or in a loader's worker.

Every rank walks the main flow in the same order, so ranks may meet there. A forward runs on a rank's own rows
(or not at all, on a rank without rows), and a data set runs in worker processes: there they must not meet.
"""

from __future__ import annotations

import ast
from enum import Enum

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.unwrapped_models import UnwrappedModels

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


class ExecutionPlace(Enum):
    MAIN = "the main flow"
    FORWARD = "the forward of a model"
    WORKER = "a data set, which worker processes read"
    THREAD = "a thread"


# By the kind of a class: where its methods run that nobody needs to name, and which these are.
ROOTS = {
    "module": (ExecutionPlace.FORWARD, ("forward",)),
    "data set": (ExecutionPlace.WORKER, WORKER_METHODS),
}


class Places:
    """The place of every node of a project's files."""

    def __init__(self, modules: Modules, apart: UnwrappedModels | None = None) -> None:
        self.modules = modules
        self.apart = apart or UnwrappedModels(
            modules.entry
        )  # models that are no part of a wrapped one: they run whole, in the main flow
        self.find = modules.definition
        self.kinds: dict[ast.AST, str | None] = {}
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
        """Functions that a forward, a data set or a thread calls run where that one runs."""
        handed_over = [(self.modules.home[function], function) for function in self.functions]
        roots = {
            place: [node for node in handed_over if self.functions[node[1]] is place]
            for place in ExecutionPlace
        }
        for script in self.modules.scripts:
            for node in script.nodes(ast.ClassDef):
                assert isinstance(node, ast.ClassDef)
                place, names = ROOTS.get(self.kind(node) or "", (ExecutionPlace.MAIN, ()))
                if place is ExecutionPlace.FORWARD and self.apart.has_class(node):
                    continue
                roots[place] += [
                    (script, statement)
                    for statement in node.body
                    if isinstance(statement, Function) and statement.name in names
                ]
        for place in (ExecutionPlace.FORWARD, ExecutionPlace.WORKER, ExecutionPlace.THREAD):
            for _, function in self.modules.graph.reached(roots[place]):
                self.functions.setdefault(function, place)

    def of(self, node: ast.AST) -> ExecutionPlace:
        script = self.modules.home.get(node)
        return self._of(script, node) if script else ExecutionPlace.MAIN

    def _of(self, script: Script, node: ast.AST) -> ExecutionPlace:
        scope = script.scopes.scope_of.get(node)
        while scope:
            place = self.functions.get(scope.node, ExecutionPlace.MAIN)
            if place is not ExecutionPlace.MAIN:
                return place
            scope = scope.parent
        return ExecutionPlace.MAIN

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
        definition = self.find(script, base)
        if definition and isinstance(definition[1], ast.ClassDef):
            return self._kind(definition[0], definition[1])
        name = script.scopes.name(base) or ""
        if name in MODULES or name.startswith("torch.nn."):
            return "module"
        if name in DATA_SETS or name.startswith(DATA_SET_ROOTS):
            return "data set"
        return None

    def _worker_functions(self, script: Script) -> dict[ast.AST, ExecutionPlace]:
        """Functions handed to a DataLoader as collate_fn or worker_init_fn."""
        return self._handed_over(script, WORKER_ARGUMENTS, ExecutionPlace.WORKER, None)

    def _thread_functions(self, script: Script) -> dict[ast.AST, ExecutionPlace]:
        """Functions handed to a thread or a process as its target."""
        places = self._handed_over(script, ("target",), ExecutionPlace.THREAD, ("Thread", "Process", "Timer"))
        if any((call.name or "").endswith(POOLS) for call in script.calls):
            given = (call.argument(0) for call in script.calls if call.method in POOL_METHODS)
            functions = (
                self.modules.definitions(script, argument) for argument in given if argument is not None
            )
            places |= {node: ExecutionPlace.THREAD for each in functions for _, node in each}
        return places

    def _handed_over(
        self,
        script: Script,
        keywords: tuple[str, ...],
        place: ExecutionPlace,
        receivers: tuple[str, ...] | None,
    ) -> dict[ast.AST, ExecutionPlace]:
        places: dict[ast.AST, ExecutionPlace] = {}
        for call in script.calls:
            receiver = call.method or (call.name or "").rpartition(".")[2]
            if receivers and receiver not in receivers:
                continue
            for keyword in call.node.keywords:
                if keyword.arg in keywords:
                    places |= {
                        definition: place for _, definition in self.modules.definitions(script, keyword.value)
                    }
        return places
