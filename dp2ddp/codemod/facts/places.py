"""Where code runs: in the main flow of the script, inside a model's forward, or in a loader's worker.

Every rank walks the main flow in the same order, so ranks may meet there. A forward runs on a rank's own rows
(or not at all, on a rank without rows), and a data set runs in worker processes: there they must not meet.
"""

from __future__ import annotations

import ast
from enum import Enum

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
WORKER_ARGUMENTS = ("collate_fn", "worker_init_fn")


class Place(Enum):
    MAIN = "the main flow"
    FORWARD = "the forward of a model"
    WORKER = "a data set, which worker processes read"
    THREAD = "a thread"


class Places:
    """The place of every node of a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.kinds: dict[ast.ClassDef, str | None] = {}
        self.reached: dict[ast.ClassDef, set[str]] = {}
        self.functions = {**_worker_functions(script), **_thread_functions(script)}
        self._spread()

    def _spread(self) -> None:
        """Functions that a forward or a data set calls run where that one runs."""
        found = True
        while found:
            found = False
            for call in self.script.calls:
                called = self.script.scopes.definition(call.node.func)
                if (
                    isinstance(called, (ast.FunctionDef, ast.AsyncFunctionDef))
                    and called not in self.functions
                ):
                    place = self.of(call.node)
                    if place is not Place.MAIN:
                        self.functions[called] = place
                        found = True

    def of(self, node: ast.AST) -> Place:
        scope = self.script.scopes.scope_of.get(node)
        while scope:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = self._of_function(scope.node)
                if place is not Place.MAIN:
                    return place
            scope = scope.parent
        return Place.MAIN

    def _of_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Place:
        if function in self.functions:
            return self.functions[function]
        owner = self.script.scopes.parents.get(function)
        if not isinstance(owner, ast.ClassDef):
            return Place.MAIN
        kind = self.kind(owner)
        if kind is None or function.name not in self._reached(owner):
            return Place.MAIN
        return Place.FORWARD if kind == "module" else Place.WORKER

    def kind(self, node: ast.ClassDef) -> str | None:
        """ "module", "data set" or None, by the bases of a class and theirs."""
        if node not in self.kinds:
            self.kinds[node] = None  # bases in a circle end here
            self.kinds[node] = next(filter(None, map(self._kind_of_base, node.bases)), None)
        return self.kinds[node]

    def _kind_of_base(self, base: ast.expr) -> str | None:
        definition = self.script.scopes.definition(base)
        if isinstance(definition, ast.ClassDef):
            return self.kind(definition)
        name = self.script.scopes.name(base) or ""
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


def _self_calls(function: ast.AST) -> set[str]:
    return {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }


def _worker_functions(script: Script) -> dict[ast.AST, Place]:
    """Functions handed to a DataLoader as collate_fn or worker_init_fn."""
    return _handed_over(script, WORKER_ARGUMENTS, Place.WORKER, None)


def _thread_functions(script: Script) -> dict[ast.AST, Place]:
    """Functions handed to a thread or a process as its target."""
    return _handed_over(script, ("target",), Place.THREAD, ("Thread", "Process", "Timer"))


def _handed_over(
    script: Script, keywords: tuple[str, ...], place: Place, receivers: tuple[str, ...] | None
) -> dict[ast.AST, Place]:
    found: dict[ast.AST, Place] = {}
    for call in script.calls:
        receiver = call.method or (call.name or "").rpartition(".")[2]
        if receivers and receiver not in receivers:
            continue
        for keyword in call.node.keywords:
            function = script.scopes.definition(keyword.value) if keyword.arg in keywords else None
            if function:
                found[function] = place
    return found
