"""Where models are wrapped in DataParallel, with which arguments, and under which names the wrapped ones live."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.script import Call, Script, literal

DATA_PARALLEL = "torch.nn.DataParallel"
DDP = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
BY_HAND = {  # the parts of DataParallel, called by the script itself
    f"torch.nn.parallel.{name}"
    for part in ("replicate", "scatter", "scatter_kwargs", "parallel_apply", "gather", "data_parallel")
    for name in (part, f"{part}.{part}", f"scatter_gather.{part}", f"comm.{part}")
} | {
    f"torch.cuda.comm.{part}"
    for part in ("broadcast", "scatter", "gather", "reduce_add", "broadcast_coalesced")
}


@dataclass(frozen=True, eq=False)
class Wrap:
    """One `nn.DataParallel(...)`."""

    call: Call
    module: ast.expr | None  # what is wrapped
    device_ids: ast.expr | None
    output_device: ast.expr | None
    dim: ast.expr | None
    ids: tuple[int, ...] | None  # device_ids, where they can be read off
    names: frozenset[str]  # the texts under which the wrapped model is used: "model", "self.net"

    @property
    def is_single(self) -> bool:
        """One device: DataParallel is a plain call (torch/nn/parallel/data_parallel.py:193, SEMANTICS section 1)."""
        return self.count == 1

    @property
    def count(self) -> int | None:
        """How many devices are named, also by a list of names: `[args.gpu]` is one."""
        if isinstance(self.device_ids, (ast.List, ast.Tuple)):
            starred = any(isinstance(one, ast.Starred) for one in self.device_ids.elts)
            return None if starred else len(self.device_ids.elts) or None
        return len(self.ids) if self.ids else None

    @property
    def dim_value(self) -> object:
        return 0 if self.dim is None else literal(self.dim)


def find_wraps(script: Script) -> tuple[Wrap, ...]:
    """All wraps, in the order of the text."""
    return tuple(_wrap(script, call) for call in script.calls_of(DATA_PARALLEL))


def _wrap(script: Script, call: Call) -> Wrap:
    device_ids = call.argument(1, "device_ids")
    return Wrap(
        call=call,
        module=call.argument(0, "module"),
        device_ids=device_ids,
        output_device=call.argument(2, "output_device"),
        dim=call.argument(3, "dim"),
        ids=literal_ids(script, device_ids),
        names=frozenset(_targets(script, call.node)),
    )


def literal_ids(script: Script, node: ast.expr | None) -> tuple[int, ...] | None:
    """`[0, 1]`, `(0, 1)`, `range(2)`, `list(range(2))`, or a name for one of them."""
    value = script.scopes.value(node)
    if isinstance(value, ast.Call) and script.scopes.name(value.func) in ("builtins.list", "builtins.tuple"):
        value = value.args[0] if len(value.args) == 1 else None
    if isinstance(value, ast.Call) and script.scopes.name(value.func) == "builtins.range":
        bounds = [bound for bound in map(literal, value.args) if isinstance(bound, int)]
        return tuple(range(*bounds)) if len(bounds) == len(value.args) in (1, 2, 3) else None
    found = literal(value)
    if isinstance(found, int) and not isinstance(found, bool):
        return (found,)
    if isinstance(found, (list, tuple)) and found and all(type(one) is int for one in found):
        return tuple(found)
    return None


def _targets(script: Script, call: ast.Call) -> Iterator[str]:
    """The names assigned from the wrap, or from a chain on it (`DataParallel(net).cuda()`) or a choice around it."""
    node: ast.AST = call
    while not isinstance(node, ast.stmt):
        node = script.scopes.parents[node]
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield script.told(target)
    elif isinstance(node, ast.AnnAssign):
        yield script.told(node.target)


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


def subclasses(script: Script, base: str = DATA_PARALLEL) -> Iterator[ast.ClassDef]:
    for node in script.nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        if any(script.scopes.name(one) == base for one in node.bases):
            yield node


def calls_by_hand(script: Script) -> Iterator[Call]:
    """replicate, scatter, parallel_apply, gather or data_parallel, called by the script."""
    return (call for call in script.calls if call.name in BY_HAND)


def foreign_wraps(script: Script) -> Iterator[Call]:
    """Wrappers that are called DataParallel-something and are not torch's: DataParallelModel, BalancedDataParallel."""
    for call in script.calls:
        last = (call.name or ast.unparse(call.node.func)).rpartition(".")[2]
        own = script.scopes.definition(call.node.func) is not None
        torchs = call.name == DATA_PARALLEL or last in ("DistributedDataParallel", "FullyShardedDataParallel")
        if (
            "DataParallel" in last
            and not own
            and not torchs
            and isinstance(call.node.func, (ast.Name, ast.Attribute))
        ):
            yield call


def distributed_already(script: Script) -> ast.AST | None:
    """The first sign that the script already runs as one of several processes."""
    for call in script.calls:
        if call.name in DDP or call.name == "torch.distributed.init_process_group":
            return call.node
    return None
