"""Tensors in tuples, lists and dicts, as DataParallel's scatter and gather find them."""

from typing import Any, Callable, Iterator

import torch


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with function(tensor) in each tensor's place."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, (tuple, list, dict)) and not tree:
        return tree  # all replicas get the same one
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, each) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, each) for each in tree)
    if isinstance(tree, dict):
        return type(tree)((key, map_tensors(function, each)) for key, each in tree.items())
    return tree


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(each)
