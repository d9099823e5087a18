"""Tensors in tuples, lists and dicts, as DataParallel's scatter and gather find them."""

import gc
from types import FunctionType, MethodType, ModuleType
from typing import Any, Callable, Iterator

import torch


def map_tensors(function: Callable[[Any], Any], tree: Any, kind: Any = torch.Tensor) -> Any:
    """The same tree with function(tensor) in each tensor's place, or in that of all leaves of a kind."""
    if isinstance(tree, (tuple, list, dict)) and not tree:
        return tree  # all replicas get the same one
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, each, kind) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, each, kind) for each in tree)
    if isinstance(tree, dict):
        return type(tree)((key, map_tensors(function, each, kind)) for key, each in tree.items())
    return function(tree) if isinstance(tree, kind) else tree


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(each)


def refuse_hidden(tree: Any) -> None:
    """Refuse tensors that need gradients inside of other objects, in which nobody finds them."""
    outside = (torch.nn.Module, ModuleType, FunctionType, MethodType, type)
    seen, pending = {id(tensor): tensor for tensor in tensors_of(tree)}, [tree]
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, outside):
            continue
        seen[id(each)] = each
        if not isinstance(each, torch.Tensor):
            pending += gc.get_referents(each)
        elif each.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                "tensors that need gradients are in an object: give them in tuples, lists or dicts"
            )
