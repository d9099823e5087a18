"""Where code runs: in the main flow of the script, inside a model's forward, or in a loader's worker.

Every rank walks the main flow in the same order, so ranks may meet there. A forward runs on a rank's own rows
(or not at all, on a rank without rows), and a data set runs in worker processes: there they must not meet.
"""

from __future__ import annotations

import ast
from enum import Enum

from dp2ddp.codemod.facts.apart import Apart
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script

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


# By the kind of a class: where its methods run that nobody needs to name, and which these are.
ROOTS = {"module": (Place.FORWARD, ("forward",)), "data set": (Place.WORKER, WORKER_METHODS)}


class Places:
    """The place of every node of a project's files."""

    def __init__(self, modules: Modules, apart: Apart | None = None) -> None:
        self.modules = modules
        self.apart = apart or Apart(
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
        handed_over = [(self.modules.home[one], one) for one in self.functions]
        roots = {place: [one for one in handed_over if self.functions[one[1]] is place] for place in Place}
        for script in self.modules.scripts:
            for node in script.nodes(ast.ClassDef):
                assert isinstance(node, ast.ClassDef)
                place, names = ROOTS.get(self.kind(node) or "", (Place.MAIN, ()))
                if place is Place.FORWARD and self.apart.has_class(node):
                    continue
                roots[place] += [
                    (script, one) for one in node.body if isinstance(one, Function) and one.name in names
                ]
        for place in (Place.FORWARD, Place.WORKER, Place.THREAD):
            for _, function in self.modules.graph.reached(roots[place]):
                self.functions.setdefault(function, place)

    def of(self, node: ast.AST) -> Place:
        script = self.modules.home.get(node)
        return self._of(script, node) if script else Place.MAIN

    def _of(self, script: Script, node: ast.AST) -> Place:
        scope = script.scopes.scope_of.get(node)
        while scope:
            place = self.functions.get(scope.node, Place.MAIN)
            if place is not Place.MAIN:
                return place
            scope = scope.parent
        return Place.MAIN

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
