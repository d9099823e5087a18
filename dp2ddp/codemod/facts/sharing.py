"""Which loaders rank 0 may iterate for all ranks (templates/shared.py), and what stands against it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.changes import Change, How
from dp2ddp.codemod.facts.loaders import calls_of_loaders
from dp2ddp.codemod.facts.memory import Kept, Memory
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.other_names import OtherNames
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.roots import Roots, is_own
from dp2ddp.codemod.facts.script import Call, Script
from dp2ddp.codemod.facts.tables import of

SHARED = ("multiprocessing.", "torch.multiprocessing.")
HARMLESS = (
    *("set_start_method", "get_start_method", "set_sharing_strategy", "get_context", "cpu_count"),
    *("current_process", "spawn", "util.Finalize"),
)

COMPUTED = of(
    "torch", "cat stack zeros ones tensor randn rand mean sum exp log sqrt sigmoid tanh softmax matmul"
)


def shared_loaders(script: Script, modules: Modules, places: Places) -> Iterator[Call]:
    """The loaders of one file that are made in the main flow, where all ranks come by."""
    return (call for call in calls_of_loaders(script, modules) if places.of(call.node) is Place.MAIN)


def against_sharing(
    script: Script,
    places: Places,
    scripts: Sequence[Script],
    reach: Reach,
    models: frozenset[str],
    alone: Sequence[Call],
) -> Iterator[str]:
    """What one file does that ranks which load nothing would miss; `alone`: what rank 0 has for all ranks anyway."""
    for call in script.calls:
        name = call.name or ""
        if not reach.is_called(script, call.node):
            continue
        if name.startswith(SHARED) and not name.endswith(HARMLESS) and call not in alone:
            yield f"workers may share what {name}() makes ({script.where(call.node)})"
        elif call.method == "share_memory_":
            yield f"workers may write to what they share ({script.where(call.node)})"
        elif _runs(script, call, models) and places.of(call.node) is Place.WORKER:
            yield f"loading runs the wrapped model ({script.where(call.node)})"
    for kept in SampleMemory(script, places, (), scripts, reach).kept():
        yield f"loading changes `{kept.name}`, which is read elsewhere ({script.where(kept.node)})"


def _runs(script: Script, call: Call, models: frozenset[str]) -> bool:
    return script.told(call.node.func).rpartition(".")[2] in models


class SampleMemory(Memory):
    """What data sets, and functions handed to loaders, change and others read.

    Not what is put into an attribute of their own, `self.epoch += 1`: the ranks keep these alike (left_behind.py).
    """

    def __init__(
        self,
        script: Script,
        places: Places,
        wraps: Sequence[Wrap],
        scripts: Sequence[Script],
        reach: Reach,
    ) -> None:
        super().__init__(script, places, wraps, scripts, reach)
        self.reached = reach
        self.other_names = OtherNames(script, places, scripts, reach)

    def kept(self) -> Iterator[Kept]:
        """What loading changes and the main flow may read, by this name or by another, each once."""
        told: set[str] = set()
        for change, kept in self.changes():
            name = self.script.told(kept)
            if name in told or not self.reached.holds(self.script, change.node):
                continue
            if self.is_read_outside(kept) or any(self.other_names.of(self.carried, kept)):
                told.add(name)
                yield Kept(change.act, name, False, True)

    def changes(self) -> Iterator[tuple[Change, ast.expr]]:
        for change, kept in super().changes():
            is_put = change.how in (How.OPERATOR, How.PART) and kept is change.node
            if not (is_put and isinstance(kept, ast.Attribute) and is_own(kept)):
                yield change, kept

    def _reads_in(self, script: Script, kept: ast.expr) -> Iterator[ast.Attribute | ast.Name]:
        """All but those before anything is loaded, questions for a length, and what something else has by this name."""
        for read in super()._reads_in(script, kept):
            function = script.scopes.function(read)
            if (
                getattr(function, "name", "") != "__init__"
                and not _is_length(script, read)
                and self.reached.holds(script, read)
                and not (isinstance(read, ast.Attribute) and self._is_of_another(script, read, kept))
            ):
                yield read

    def _is_of_another(self, script: Script, read: ast.Attribute, kept: ast.expr) -> bool:
        """Of torch itself (`torch.utils.data`), of what it computes (`out.data`), of an object of another class."""
        if not isinstance(kept, ast.Attribute) or not is_own(kept):
            return False
        if f"{script.scopes.name(read.value)}.".startswith("torch."):
            return True
        values = self._roots_in(script).values_of(read.value)
        if values and all(_is_computed(script, one) for one in values):
            return True
        return is_own(read) and self._are_strangers(script, read, kept)

    def _roots_in(self, script: Script) -> Roots:
        return self.carried.roots if script is self.script else Roots(script, self.places)

    def _are_strangers(self, script: Script, read: ast.expr, kept: ast.expr) -> bool:
        """Whether no object has both classes, as far as all bases of all classes can be read."""
        owners = (
            (self.script, self.script.scopes.owner_class(kept)),
            (script, script.scopes.owner_class(read)),
        )
        (_, one), (_, other) = owners
        if one is None or other is None:
            return False
        graph = self.places.modules.graph
        families = [{part for _, part in graph.heirs_of((home, kind))} for home, kind in owners if kind]
        return families[0].isdisjoint(families[1]) and not graph.hides_bases

    def is_in_forward(self, node: ast.AST, script: Script | None = None) -> bool:
        """Whether it runs where samples are loaded."""
        return self.places.of(node) is Place.WORKER

    def _is_namespace(self, change: Change) -> bool:
        return (
            isinstance(change.thing, ast.Name) and change.thing.id == "self" or super()._is_namespace(change)
        )

    def _is_of_replica(self, change: Change) -> bool:
        return False


def _is_length(script: Script, read: ast.expr) -> bool:
    call = script.scopes.parents[read]
    return isinstance(call, ast.Call) and script.scopes.name(call.func) == "builtins.len"


def _is_computed(script: Script, value: ast.expr) -> bool:
    """`F.relu(x)`, `torch.cat(parts)`: a tensor."""
    name = script.scopes.name(value.func) if isinstance(value, ast.Call) else None
    return name is not None and (name.startswith("torch.nn.functional.") or name in COMPUTED)
