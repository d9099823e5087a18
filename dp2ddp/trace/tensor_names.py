"""What a script's tensors are called, found without touching its objects: by looking at all modules alive.

Names of an optimizer that has been met are found out once, and again when its tensors change. What it remembers between
steps are named tensors, too: `exp_avg of conv1.weight`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # not in its __all__

from dp2ddp.trace.records import Layout, Vector
from dp2ddp.trace.tensors import layout_of

T = TypeVar("T")
_WRAPPERS = (DataParallel, DistributedDataParallel)
_OWN_MARK = "stands_for_data_parallel"  # of templates/model.py, which is copied into scripts
Table = tuple[str, dict[str, torch.Tensor | None]]  # the name of a module, and its buffers or parameters


def living_roots() -> list[nn.Module]:
    """Every module that Python knows of and that is not part of another.

    Objects are asked for their type, never for an attribute: proxies may react to that.
    """
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    children = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in children]


def parameter_names(roots: list[nn.Module], parameters: Iterable[torch.Tensor], optimizer: int) -> list[str]:
    """`conv1.weight`, as the model itself says; `optimizer 0, parameter 3` for what lives in no module."""
    named = by_shortest_name(named_tensors(tensor_tables(roots)))
    names = {key: name for key, (name, _) in named.items()}
    return [names.get(id(each), f"optimizer {optimizer}, parameter {i}") for i, each in enumerate(parameters)]


def buffer_tables(roots: list[nn.Module], parameters: Iterable[torch.Tensor]) -> list[Table]:
    """The tables of buffers of the models that hold these parameters.

    The table stays the same dict for the module's life (nn.Module._apply assigns into it), so whoever keeps it can read
    the buffers at the end without keeping a model, or a DDP reducer, alive.
    """
    ids = {id(each) for each in parameters}
    holding = [
        root for root in roots if any(id(tensor) in ids for _, tensor in named_tensors(tensor_tables([root])))
    ]
    tables = by_shortest_name(tensor_tables(holding, BUFFERS)).values()
    return sorted(tables, key=lambda each: each[0])


BUFFERS = slice(1, 2)  # of what _tables_of returns


def tensor_tables(roots: Iterable[nn.Module], which: slice = slice(2)) -> Iterator[Table]:
    """The tables of parameters and of buffers of models: module by module, and none of DataParallel's replicas."""
    for root in roots:
        if vars(root).get("_is_replica"):
            continue
        for name, module in root.named_modules():
            for table in filter(None, _tables_of(module)[which]):
                yield _unwrapped(root, name), table


def named_tensors(tables: Iterable[Table]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that there are now, by the name they have in the model."""
    for module, table in tables:
        for name, tensor in table.items():
            if tensor is not None and holds_numbers(tensor) and tensor.numel():
                yield f"{module}.{name}" if module else name, tensor


def holds_numbers(tensor: torch.Tensor) -> bool:
    """Not one of the meta device, nor of a lazy module that was not called yet."""
    return not (tensor.is_meta or isinstance(tensor, UninitializedTensorMixin))


_Tables = tuple[Any, Any]  # of names and tensors; Any: a dict, or torch.jit's own class for it
_OF_SCRIPTS: weakref.WeakKeyDictionary[nn.Module, _Tables] = weakref.WeakKeyDictionary()


def _tables_of(module: nn.Module) -> _Tables:
    """Parameters and buffers. torch.jit's modules make new tables whenever they are asked: the first ones are kept."""
    if not isinstance(module, torch.jit.ScriptModule):
        return module._parameters, module._buffers
    if module not in _OF_SCRIPTS:
        _OF_SCRIPTS[module] = module._parameters, module._buffers
    return _OF_SCRIPTS[module]


def by_shortest_name(named: Iterable[tuple[str, T]]) -> dict[int, tuple[str, T]]:
    """By id, each once. It may be reached over several models: the one that holds it most directly names it."""
    shortest: dict[int, tuple[str, T]] = {}
    for name, thing in named:
        known = shortest.get(id(thing))
        if known is None or (len(name), name) < (len(known[0]), known[0]):
            shortest[id(thing)] = (name, thing)
    return shortest


def _unwrapped(root: nn.Module, name: str) -> str:
    """The name without the `module` steps that go through a DataParallel or DistributedDataParallel."""
    kept, here = [], root
    for part in name.split("."):
        kinds = type(here).__mro__ if part == "module" else ()
        if not any(kind in _WRAPPERS or _OWN_MARK in vars(kind) for kind in kinds):
            kept.append(part)
        children = dict(here._modules.items())  # torch.jit's modules have no `get` there
        here = children.get(part) or nn.Module()
    return ".".join(kept)


def state_tensors(
    optimizer: Any, parameters: Sequence[torch.Tensor], names: Sequence[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors and numbers, also in lists (LBFGS keeps its history in them), in the order of the parameters."""
    state = getattr(optimizer, "state", {})
    for parameter, name in zip(parameters, names, strict=True):
        # .get: looking a parameter up in this defaultdict would make an entry, which the optimizer may ask for
        for key, tensor in _tensors("", state.get(parameter, {})):
            yield f"{key} of {name}", tensor


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(float(value), dtype=torch.float64)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _tensors(f"{name}.{key}" if name else str(key), value[key])
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _tensors(f"{name}[{place}]", each)


class KnownOptimizer:
    """Holds names and layouts, and of the script's objects only its modules' tables of buffers."""

    def __init__(self, ordinal: int, optimizer: Any, roots: list[nn.Module]) -> None:
        parameters = parameters_of(optimizer)
        self.ordinal = ordinal
        self.layout = layout_of(parameter_names(roots, parameters, ordinal), parameters)
        self.tables = buffer_tables(roots, parameters)
        self.whole = False  # whether this step's values are kept
        self.pending: dict[str, Vector] = {}  # gradients of the step that is under way
        self._identities = _identities(parameters)
        self._state, self._buffers = _Remembered(), _Remembered()

    def is_up_to_date(self, optimizer: Any) -> bool:
        """Whether the optimizer still has the tensors that it had."""
        return self._identities == _identities(parameters_of(optimizer))

    def state(self, optimizer: Any) -> tuple[Layout, list[torch.Tensor]]:
        """What the optimizer remembers."""
        return self._state.layout(state_tensors(optimizer, parameters_of(optimizer), self.layout.names))

    def buffers(self) -> tuple[Layout, list[torch.Tensor]]:
        """The buffers of the models that hold the optimizer's parameters, and their layout."""
        return self._buffers.layout(named_tensors(self.tables))


class _Remembered:
    """The layout of named tensors, which are mostly the same as the last time."""

    def __init__(self) -> None:
        self._seen: tuple[list[str], list[Any]] = ([], [])
        self._layout = Layout()

    def layout(self, named: Iterable[tuple[str, torch.Tensor]]) -> tuple[Layout, list[torch.Tensor]]:
        pairs = list(named)
        names, tensors = [name for name, _ in pairs], [tensor for _, tensor in pairs]
        seen = (names, [(tensor.shape, tensor.dtype) for tensor in tensors])
        if seen != self._seen:
            self._seen, self._layout = seen, layout_of(names, tensors)
        return self._layout, tensors


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """The parameters of all groups of an optimizer, in their order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _identities(parameters: Sequence[torch.Tensor]) -> list[tuple[int, torch.Size, torch.dtype]]:
    return [(id(parameter), parameter.shape, parameter.dtype) for parameter in parameters]
