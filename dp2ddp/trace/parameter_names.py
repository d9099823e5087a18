"""What a script's parameters are called, found without touching its objects: by looking at all modules alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

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
    names: dict[int, str] = {}
    for root in roots:
        for name, tensor in _own_parameters(root):
            names[id(tensor)] = min(names.get(id(tensor), name), name, key=shortest)
    return [names.get(id(each), f"optimizer {optimizer}, parameter {i}") for i, each in enumerate(parameters)]


def buffer_tables(roots: list[nn.Module], parameters: Iterable[torch.Tensor]) -> list[Table]:
    """The tables of buffers of the models that hold these parameters.

    The table stays the same dict for the module's life (nn.Module._apply assigns into it), so whoever keeps it can read
    the buffers at the end without keeping a model, or a DDP reducer, alive.
    """
    ids = {id(each) for each in parameters}
    names: dict[int, str] = {}
    tables: dict[int, dict[str, torch.Tensor | None]] = {}
    for root in roots:
        if any(id(tensor) in ids for _, tensor in _own_parameters(root)):
            for name, module in root.named_modules():
                _, table = _tables_of(module)
                if table:
                    short = _unwrapped(root, name)
                    tables[id(table)] = table
                    names[id(table)] = min(names.get(id(table), short), short, key=shortest)
    return sorted(((names[key], table) for key, table in tables.items()), key=lambda each: each[0])


def tensor_tables(roots: Iterable[nn.Module]) -> Iterator[Table]:
    """The tables of parameters and of buffers of models: module by module, and none of DataParallel's replicas."""
    for root in roots:
        if vars(root).get("_is_replica"):
            continue
        for name, module in root.named_modules():
            for table in _tables_of(module):
                if table:
                    yield _unwrapped(root, name), table


def named_tensors(tables: Iterable[Table]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that there are now, by the name they have in the model."""
    for module, table in tables:
        for name, tensor in table.items():
            if tensor is not None and tensor.numel():
                yield f"{module}.{name}" if module else name, tensor


_Tables = tuple[Any, Any]  # of names and tensors; Any: a dict, or torch.jit's own class for it
_OF_SCRIPTS: weakref.WeakKeyDictionary[nn.Module, _Tables] = weakref.WeakKeyDictionary()


def _tables_of(module: nn.Module) -> _Tables:
    """Parameters and buffers. torch.jit's modules make new tables whenever they are asked: the first ones are kept."""
    if not isinstance(module, torch.jit.ScriptModule):
        return module._parameters, module._buffers
    if module not in _OF_SCRIPTS:
        _OF_SCRIPTS[module] = module._parameters, module._buffers
    return _OF_SCRIPTS[module]


def shortest(name: str) -> tuple[int, str]:
    """A parameter may be reached over several models: the one that holds it most directly names it."""
    return len(name), name


def _own_parameters(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, module in root.named_modules():
        for name, tensor in _tables_of(module)[0].items():
            if tensor is not None:
                yield _unwrapped(root, f"{prefix}.{name}" if prefix else name), tensor


def _unwrapped(root: nn.Module, name: str) -> str:
    """The name without the `module` steps that go through a DataParallel or DistributedDataParallel."""
    kept, here = [], root
    for part in name.split("."):
        if not (part == "module" and _is_wrapper(here)):
            kept.append(part)
        children = dict(here._modules.items())  # torch.jit's modules have no `get` there
        here = children.get(part) or nn.Module()
    return ".".join(kept)


def _is_wrapper(module: nn.Module) -> bool:
    return isinstance(module, _WRAPPERS) or any(_OWN_MARK in vars(kind) for kind in type(module).__mro__)
