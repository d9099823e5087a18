"""Where models are wrapped in DataParallel, with which arguments, and under which names the wrapped ones live."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dp2ddp.codemod.facts.looked_up import named_lookups
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.scopes import SCRIPT, Scope
from dp2ddp.codemod.facts.script import CallSite, Script, literal

DATA_PARALLEL = "torch.nn.DataParallel"
DDP = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
PARTS = {  # what a script calls that does DataParallel's work by hand, and what does the same over the ranks
    f"torch.nn.parallel.{module}{name}": helper
    for name, helper, modules in (
        ("replicate", "replicate_on_ranks", ("", "replicate.")),
        ("scatter", "scatter_to_ranks", ("", "scatter_gather.")),
        ("scatter_kwargs", "scatter_kwargs_to_ranks", ("", "scatter_gather.")),
        ("parallel_apply", "parallel_apply_on_ranks", ("", "parallel_apply.")),
        ("gather", "gather_from_ranks", ("", "scatter_gather.")),
        ("data_parallel", "data_parallel_on_ranks", ("", "data_parallel.")),
        ("Scatter.apply", "scatter_tensor_to_ranks", ("_functions.",)),
        ("Broadcast.apply", "broadcast_to_ranks", ("_functions.",)),
        ("ReduceAddCoalesced.apply", "reduce_add_on_ranks", ("_functions.",)),
    )
    for module in modules
}
RUNS_BY_HAND = ("parallel_apply_on_ranks", "data_parallel_on_ranks")  # of these, what runs a module
COPIES = (  # copies between devices, by hand
    *(f"torch.nn.parallel.comm.{suffix}" for suffix in ("broadcast", "scatter", "gather", "reduce_add")),
    *(f"torch.nn.parallel.comm.{suffix}" for suffix in ("broadcast_coalesced", "reduce_add_coalesced")),
    *(f"torch.cuda.comm.{suffix}" for suffix in ("broadcast", "scatter", "gather", "reduce_add")),
    *("torch.cuda.comm.broadcast_coalesced", "torch.cuda.comm.reduce_add_coalesced"),
    "torch.nn.parallel._functions.Gather.apply",
)


class WrapKind(Enum):
    """How a model comes to be run on several devices."""

    WRAP = "nn.DataParallel(...)"
    SUBCLASS = "a subclass of DataParallel"
    BY_HAND = "data_parallel() or parallel_apply()"


@dataclass(frozen=True, eq=False)
class Wrap:
    """One `nn.DataParallel(...)`."""

    call: CallSite
    module: ast.expr | None  # what is wrapped
    device_ids: ast.expr | None
    output_device: ast.expr | None
    dim: ast.expr | None
    ids: tuple[int, ...] | None  # device_ids, where they can be read off
    targets: tuple[ast.expr, ...]  # what the wrapped model is assigned to
    names: frozenset[str]  # the texts of these: "model", "self.net"
    kind: WrapKind = WrapKind.WRAP

    @property
    def is_single(self) -> bool:
        """One device: DataParallel is a plain call (docs/semantics.md#one-device)."""
        return self.count == 1

    @property
    def count(self) -> int | None:
        """How many devices are named, also by a list of names: `[args.gpu]` is one."""
        if isinstance(self.device_ids, (ast.List, ast.Tuple)):
            starred = any(isinstance(element, ast.Starred) for element in self.device_ids.elts)
            return None if starred else len(self.device_ids.elts) or None
        return len(self.ids) if self.ids else None

    @property
    def is_readable(self) -> bool:
        """Whether its arguments can be told apart: not `*given` or `**options`."""
        starred = any(isinstance(argument, ast.Starred) for argument in self.call.node.args)
        return not starred and all(keyword.arg for keyword in self.call.node.keywords)

    @property
    def dim_value(self) -> object:
        return 0 if self.dim is None else literal(self.dim)


def find_wraps(script: Script, modules: Modules) -> tuple[Wrap, ...]:
    """All wraps, in the order of the text."""
    calls = (call for call in script.calls if not script.never_runs(call.node))
    return tuple(filter(None, (_wrap(script, modules, call) for call in calls)))


def _wrap(script: Script, modules: Modules, call: CallSite) -> Wrap | None:
    if call.name == DATA_PARALLEL:
        return _wrap_with(script, call, WrapKind.WRAP, (0, 1, 2, 3))
    if PARTS.get(call.name or "") in RUNS_BY_HAND:
        functional = PARTS[call.name or ""] == "data_parallel_on_ranks"
        return _wrap_with(script, call, WrapKind.BY_HAND, (0, 2, 3, 4) if functional else (None,) * 4)
    definition = modules.definition(script, call.node.func)
    if (
        definition
        and isinstance(definition[1], ast.ClassDef)
        and is_subclass(definition[0], modules, definition[1])
    ):
        own = any(getattr(statement, "name", "") == "__init__" for statement in definition[1].body)
        return _wrap_with(script, call, WrapKind.SUBCLASS, (None,) * 4 if own else (0, 1, 2, 3))
    return None


def _wrap_with(script: Script, call: CallSite, kind: WrapKind, places: tuple[int | None, ...]) -> Wrap:
    """A wrap whose module, device_ids, output_device and dim stand at these places."""
    device_ids = call.argument(places[1], "device_ids")
    targets = () if kind is WrapKind.BY_HAND else tuple(_targets(script, call.node))
    return Wrap(
        call=call,
        module=call.argument(places[0], "module"),
        device_ids=device_ids,
        output_device=call.argument(places[2], "output_device"),
        dim=call.argument(places[3], "dim"),
        ids=literal_ids(script, device_ids),
        targets=targets,
        names=frozenset(map(script.text_of, targets)),
        kind=kind,
    )


def literal_ids(script: Script, node: ast.expr | None) -> tuple[int, ...] | None:
    """`[0, 1]`, `(0, 1)`, `range(2)`, `list(range(2))`, or a name for one of them."""
    value = script.scopes.value(node)
    if isinstance(value, ast.Call) and script.scopes.name(value.func) in ("builtins.list", "builtins.tuple"):
        value = value.args[0] if len(value.args) == 1 else None
    if isinstance(value, ast.Call) and script.scopes.name(value.func) == "builtins.range":
        bounds = [bound for bound in map(literal, value.args) if isinstance(bound, int)]
        return tuple(range(*bounds)) if len(bounds) == len(value.args) in (1, 2, 3) else None
    ids = literal(value)
    if isinstance(ids, int) and not isinstance(ids, bool):
        return (ids,)
    if isinstance(ids, (list, tuple)) and ids and all(type(item) is int for item in ids):
        return tuple(ids)
    return None


def _targets(script: Script, call: ast.Call) -> Iterator[ast.expr]:
    """What is assigned from the wrap, or from a chain on it (`DataParallel(net).cuda()`) or a choice around it."""
    node: ast.AST = call
    while not isinstance(node, ast.stmt):
        node = script.scopes.parents[node]
    if isinstance(node, ast.Assign):
        yield from node.targets
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def class_references(script: Script) -> Iterator[ast.expr]:
    """Where the class DataParallel stands without being called: isinstance, type(m) is, a base class, an alias."""
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if not isinstance(node.ctx, ast.Load) or script.scopes.name(node) != DATA_PARALLEL:
            continue
        parent = script.scopes.parents[node]
        if isinstance(parent, ast.Call) and parent.func is node:
            continue
        yield node


def is_type_test(script: Script, reference: ast.expr) -> bool:
    """`isinstance(m, DataParallel)`, `isinstance(m, (A, DataParallel))`, `type(m) is DataParallel`."""
    parent = script.scopes.parents[reference]
    if isinstance(parent, ast.Tuple):
        parent = script.scopes.parents[parent]
    if isinstance(parent, ast.Call):
        return script.scopes.name(parent.func) in ("builtins.isinstance", "builtins.issubclass")
    return isinstance(parent, ast.Compare)


def hidden_references(script: Script) -> Iterator[ast.expr]:
    """Where DataParallel is handed on, so that the wrap cannot be seen: to a function, in a dict, by its name."""
    for reference in class_references(script):
        if not (
            is_type_test(script, reference)
            or _is_followed(script, reference)
            or _is_annotation(script, reference)
        ):
            yield reference
    yield from named_lookups(script)


def _is_annotation(script: Script, reference: ast.expr) -> bool:
    """`model: nn.DataParallel`, `-> Optional[nn.DataParallel]`, `cast(nn.DataParallel, model)`: nothing is called."""
    child: ast.AST = reference
    for parent in script.scopes.ancestors(reference):
        if isinstance(parent, ast.arg) or isinstance(parent, ast.AnnAssign) and parent.annotation is child:
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return parent.returns is child
        if isinstance(parent, ast.Subscript) and (script.scopes.name(parent.value) or "").startswith(
            "typing."
        ):
            return True
        if isinstance(parent, ast.Call):
            return script.scopes.name(parent.func) == "typing.cast" and parent.args[:1] == [child]
        if isinstance(parent, ast.stmt):
            return False
        child = parent
    return False


def _is_followed(script: Script, reference: ast.expr) -> bool:
    """A base class, or a name that always means DataParallel: its calls are found."""
    parent = script.scopes.parents[reference]
    if isinstance(parent, ast.ClassDef):
        return True
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return bool(targets) and all(
        isinstance(target, ast.Name)
        and len(
            (script.scopes.lookup(target.id, script.scopes.scope_of[target]) or _NOWHERE).values.get(
                target.id, []
            )
        )
        == 1
        for target in targets
    )


_NOWHERE = Scope(ast.Pass(), None)


def subclasses(script: Script, modules: Modules) -> Iterator[ast.ClassDef]:
    for node in script.nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        if is_subclass(script, modules, node):
            yield node


def is_subclass(script: Script, modules: Modules, node: ast.ClassDef) -> bool:
    """Whether a class is made from DataParallel, directly or by other classes of the project."""
    return any(
        home.scopes.name(base) == DATA_PARALLEL
        for home, inner in modules.graph.bases_of((script, node))
        for base in getattr(inner, "bases", ())
    )


def calls_by_hand(script: Script) -> Iterator[CallSite]:
    """replicate, scatter, parallel_apply, gather or data_parallel, called by the script."""
    return (call for call in script.calls if call.name in PARTS)


def copies_by_hand(script: Script) -> Iterator[CallSite]:
    """Copies between devices that the script makes itself."""
    return (call for call in script.calls if call.name in COPIES)


def parts_handed_on(script: Script) -> Iterator[ast.expr]:
    """Where parallel_apply and the like stand without being called."""
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        parent = script.scopes.parents[node]
        called = isinstance(parent, ast.Call) and parent.func is node or isinstance(parent, ast.Assign)
        if isinstance(node.ctx, ast.Load) and not called and script.scopes.name(node) in PARTS:
            yield node


def foreign_callbacks(script: Script, modules: Modules) -> Iterator[ast.expr]:
    """`patch_replication_callback(net)` of a module that is not among the files: what its layers do cannot be read."""
    for call in script.calls:
        name = call.name or str(getattr(call.node.func, "id", ""))
        if name.rpartition(".")[2] == "patch_replication_callback" and not modules.definition(
            script, call.node.func
        ):
            yield call.node


def foreign_wraps(script: Script, modules: Modules) -> Iterator[CallSite]:
    """Wrappers from elsewhere, which cannot be read: DataParallelModel, BalancedDataParallel, make_data_parallel."""
    named = set(named_lookups(script))
    for call in script.calls:
        last = (call.name or ast.unparse(call.node.func)).rpartition(".")[2]
        torchs = call.name == DATA_PARALLEL or last in ("DistributedDataParallel", "FullyShardedDataParallel")
        imported = "data_parallel" in last and "." in (call.name or "") and call.name not in PARTS
        if (
            ("DataParallel" in last or imported and not (call.name or "").startswith(("torch.", SCRIPT)))
            and modules.definition(script, call.node.func) is None
            and not torchs
            and call.node.func not in named
            and isinstance(call.node.func, (ast.Name, ast.Attribute))
        ):
            yield call
