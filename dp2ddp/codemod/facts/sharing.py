"""Which loaders rank 0 may iterate for all ranks (templates/shared.py), and what stands against it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from dp2ddp.codemod.facts.forward_state import ForwardState, Kept
from dp2ddp.codemod.facts.loaders import calls_of_loaders
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.mutations import How, Mutation
from dp2ddp.codemod.facts.other_names import OtherNames
from dp2ddp.codemod.facts.own_generators import shared_generators
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.roots import Roots, is_own
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.tables import of

SHARED = ("multiprocessing.", "torch.multiprocessing.")
HARMLESS = (
    *("set_start_method", "get_start_method", "set_sharing_strategy", "get_context", "cpu_count"),
    *("current_process", "spawn", "util.Finalize"),
)

COMPUTED = of(
    "torch", "cat stack zeros ones tensor randn rand mean sum exp log sqrt sigmoid tanh softmax matmul"
)


def shared_loaders(script: Script, modules: Modules, places: Places) -> Iterator[CallSite]:
    """The loaders of one file that are made in the main flow, where all ranks come by."""
    return (call for call in calls_of_loaders(script, modules) if places.of(call.node) is ExecutionPlace.MAIN)


def against_sharing(
    script: Script,
    places: Places,
    scripts: Sequence[Script],
    reach: Reach,
    models: frozenset[str],
    alone: Sequence[CallSite],
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
        elif _runs(script, call, models) and places.of(call.node) is ExecutionPlace.WORKER:
            yield f"loading runs the wrapped model ({script.where(call.node)})"
    for made, name in shared_generators(script, places, scripts):
        yield f"loading and the main flow draw from `{name}` ({script.where(made)})"
    for kept in SampleMemory(script, places, (), scripts, reach).kept():
        yield f"loading changes `{kept.name}`, which is read elsewhere ({script.where(kept.node)})"


def _runs(script: Script, call: CallSite, models: frozenset[str]) -> bool:
    return script.text_of(call.node.func).rpartition(".")[2] in models


class SampleMemory(ForwardState):
    """What data sets, and functions handed to loaders, change and others read.

    Not what is put into an attribute of their own, `self.epoch += 1`: the ranks keep these alike (loader_state.py).
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

    def kept(self) -> Iterator[Kept]:
        """What loading changes and the main flow may read, by this name or by another, each once."""
        reported: set[str] = set()
        other_names = OtherNames(self.script, self.places, self.scripts, self.reached)
        for change, kept in self.changes():
            name = self.script.text_of(kept)
            if name in reported or not self.reached.holds(self.script, change.node):
                continue
            if self.is_read_outside(kept) or any(other_names.of(self.carried, kept)):
                reported.add(name)
                yield Kept(change.act, name, False, True)

    def changes(self) -> Iterator[tuple[Mutation, ast.expr]]:
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
        """An attribute of torch (`torch.utils.data`), of what it computes (`out.data`), of another class."""
        if not isinstance(kept, ast.Attribute) or not is_own(kept):
            return False
        if f"{script.scopes.name(read.value)}.".startswith("torch."):
            return True
        values = self._roots_in(script).values_of(read.value)
        if values and all(_is_computed(script, value) for value in values):
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
        (_, node), (_, other) = owners
        if node is None or other is None:
            return False
        graph = self.places.modules.graph
        families = [{part for _, part in graph.heirs_of((home, kind))} for home, kind in owners if kind]
        return families[0].isdisjoint(families[1]) and not graph.hides_bases

    def is_in_forward(self, node: ast.AST, script: Script | None = None) -> bool:
        """Whether it runs where samples are loaded."""
        return self.places.of(node) is ExecutionPlace.WORKER

    def _is_namespace(self, change: Mutation) -> bool:
        return (
            isinstance(change.thing, ast.Name) and change.thing.id == "self" or super()._is_namespace(change)
        )

    def _is_of_replica(self, change: Mutation) -> bool:
        return False


class OwnSampleMemory(SampleMemory):
    """Also what is put into an attribute of their own, which Rank0Loader (templates/plain.py) tells no other rank."""

    def changes(self) -> Iterator[tuple[Mutation, ast.expr]]:
        return ForwardState.changes(self)

    def kept(self) -> Iterator[Kept]:
        """All that loading changes, whoever reads it."""
        for change, kept in self.changes():
            if self.reached.holds(self.script, change.node):
                yield Kept(change.act, self.script.text_of(kept), False, True)


def changes_of_samplers(script: Script, loaders: Iterable[CallSite]) -> Iterator[ast.Attribute]:
    """Where a sampler counts its passes, or keeps what it drew: those of other ranks are never iterated."""
    given = {
        script.scopes.definition(made.func)
        for call in loaders
        for name in ("sampler", "batch_sampler")
        if isinstance(made := script.scopes.value(getattr(call.keyword(name), "value", None)), ast.Call)
    }
    for kind in script.nodes(ast.ClassDef):
        assert isinstance(kind, ast.ClassDef)
        if kind in given or any("Sampler" in script.text_of(base) for base in kind.bases):
            yield from _changes_after_init(kind)


def _changes_after_init(kind: ast.ClassDef) -> Iterator[ast.Attribute]:
    """The attributes that its methods put something into."""
    for method in kind.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    yield node


def _is_length(script: Script, read: ast.expr) -> bool:
    call = script.scopes.parents[read]
    return isinstance(call, ast.Call) and script.scopes.name(call.func) == "builtins.len"


def _is_computed(script: Script, value: ast.expr) -> bool:
    """`F.relu(x)`, `torch.cat(parts)`: a tensor."""
    name = script.scopes.name(value.func) if isinstance(value, ast.Call) else None
    return name is not None and (name.startswith("torch.nn.functional.") or name in COMPUTED)
