"""Data loaders: which ones a rank may share out because loading a sample neither draws numbers nor leaves a trace."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.script import Call, Script, literal
from dp2ddp.codemod.facts.tables import of

LOADER = "torch.utils.data.DataLoader"
KEYWORDS = {  # arguments of a DataLoader that change nothing about what is in a sample: all ranks draw the same batches
    *("sampler", "batch_sampler", "generator"),
    *(
        "dataset",
        "batch_size",
        "shuffle",
        "num_workers",
        "pin_memory",
        "drop_last",
        "timeout",
        "prefetch_factor",
    ),
    *("persistent_workers", "pin_memory_device"),
}
POSITIONS = 3  # dataset, batch_size, shuffle
PLAIN_DATA_SETS = ("torch.utils.data.TensorDataset",)
AROUND_DATA_SETS = (
    "torch.utils.data.Subset",
    "torch.utils.data.ConcatDataset",
    "torch.utils.data.random_split",
)
# What __getitem__ may call: tensors from data and back, shapes, text, files that are read.
PURE = {
    *of("builtins", "len int float str bool abs min max sum range tuple list dict sorted zip"),
    *of("torch", "tensor as_tensor from_numpy stack cat zeros ones full arange float long sin cos exp"),
    *of("torch", "linspace where clamp LongTensor FloatTensor Tensor"),
    *of("numpy", "array asarray load float32 int64 stack concatenate transpose zeros ones"),
    *("os.path.join", "PIL.Image.open", "cv2.imread"),
}
PURE_METHODS = {
    *("float", "long", "double", "half", "int", "bool", "to", "view", "reshape"),
    *("permute", "transpose", "unsqueeze", "squeeze", "clone", "copy", "astype", "item", "tolist"),
    *("numpy", "size", "dim", "mean", "sum", "std", "div", "mul", "add"),
    *("sub", "contiguous", "flatten", "type", "convert", "t", "get", "split", "strip"),
    *("format"),
}
WRITES = (ast.Global, ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom)


@dataclass(frozen=True, eq=False)
class Loader:
    """One `name = DataLoader(...)`, and what keeps it from being shared out (None: nothing)."""

    call: Call
    name: str | None
    stopper: str | None


def find_loaders(script: Script) -> tuple[Loader, ...]:
    return tuple(_loader(script, call) for call in script.calls_of(LOADER))


def _loader(script: Script, call: Call) -> Loader:
    parent = script.scopes.parents[call.node]
    name = (
        script.told(parent.targets[0])
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1
        else None
    )
    return Loader(call, name, next(_stoppers(script, call, name), None))


def _stoppers(script: Script, call: Call, name: str | None) -> Iterator[str]:
    if name is None:
        yield "the loader is not given a name"
    unknown = [one.arg or "**" for one in call.node.keywords if one.arg not in KEYWORDS]
    if (
        unknown
        or len(call.node.args) > POSITIONS
        or any(isinstance(one, ast.Starred) for one in call.node.args)
    ):
        yield f"the loader's {unknown[0] if unknown else 'arguments'} may draw or mix samples"
    size = call.argument(1, "batch_size")
    no_size = size is None or isinstance(size, ast.Constant) and literal(size) is None
    if no_size and not call.argument(None, "batch_sampler"):
        yield "the loader makes no batches"
    if not is_plain_data_set(script, call.argument(0, "dataset")):
        yield "loading a sample of its data set may draw random numbers or leave a trace"


def is_plain_data_set(script: Script, node: ast.AST | None, depth: int = 5) -> bool:
    """Whether every sample can be loaded alone, on any rank, with the same result."""
    if node is None or depth == 0:
        return False
    made = script.scopes.value(node)
    if isinstance(made, ast.Name):
        made = _from_split(script, made)
    if not isinstance(made, ast.Call):
        return False
    name = script.scopes.name(made.func)
    if name in PLAIN_DATA_SETS:
        return True
    if name in AROUND_DATA_SETS and made.args:
        first = made.args[0]
        parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
        return all(is_plain_data_set(script, part, depth - 1) for part in parts)
    definition = script.scopes.definition(made.func)
    return isinstance(definition, ast.ClassDef) and loads_plainly(script, definition)


def _from_split(script: Script, name: ast.Name) -> ast.AST | None:
    """`train, test = random_split(data, ...)`: the call behind one of the names."""
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        targets = [one for target in node.targets if isinstance(target, ast.Tuple) for one in target.elts]
        if any(isinstance(one, ast.Name) and one.id == name.id for one in targets):
            called = script.scopes.name(getattr(node.value, "func", None))
            return node.value if called == "torch.utils.data.random_split" else None
    return None


def loads_plainly(script: Script, definition: ast.ClassDef) -> bool:
    """A map-style data set of the script whose __getitem__ does nothing but look up and compute."""
    bases = [script.scopes.name(base) for base in definition.bases]
    if bases not in (["torch.utils.data.Dataset"], []):
        return False
    methods = {one.name: one for one in definition.body if isinstance(one, ast.FunctionDef)}
    if "__getitem__" not in methods or {"__iter__", "__getitems__", "__getattr__"} & methods.keys():
        return False
    return _is_pure(script, methods["__getitem__"])


def _is_pure(script: Script, function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, WRITES):
            return False
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Call) and not _is_pure_call(script, node):
            return False
    return not function.decorator_list


def _is_pure_call(script: Script, call: ast.Call) -> bool:
    name = script.scopes.name(call.func)
    if name is not None:
        return name in PURE
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None or isinstance(owner, ast.Name) and owner.id == "self":
        return False
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr in PURE_METHODS
