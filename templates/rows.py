"""Rows that lie on different ranks, brought together in rank order."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed

from .compiled import uncompiled
from .process import exchange, own_rank, world_size


def concatenate_ranks(own: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """torch.cat of every rank's tensor along dim; rank r brings sizes[r] rows, which may be none.

    Travels as bytes, padded to the largest part, so that any dtype and any backend will do.
    """
    rows = own.detach().movedim(dim, 0)  # (rows, ...)
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    torch.distributed.all_gather([as_bytes(part) for part in parts], as_bytes(padded))
    whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    # Not a view: scripts write into what a forward returned, and autograd lets nobody write into a Function's views.
    return whole if dim == 0 else whole.movedim(0, dim).clone(memory_format=torch.contiguous_format)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as a vector of bytes."""
    return tensor.reshape(-1).view(torch.uint8)


class RowsApart:
    """Whether each rank works on rows of its own: since a model was wrapped that takes them (split=False).

    A script may wrap under a condition. Until it does, loaders give whole batches, and nothing is to be gathered.
    """

    now = False


def gather_rows(value: Any) -> Any:
    """What is used of a batch behind the forward, whole again: on every rank, if the ranks' rows are apart."""
    return join_rows(value) if RowsApart.now else value


@uncompiled
def join_rows(value: Any) -> Any:
    """This rank's rows of a batch in, the whole batch out, the same on every rank.

    Tensors are concatenated along their first dimension, and so are lists of things that are not
    tensors (file names, say). Tuples, lists and dicts of them keep their form. A rank without rows
    brings tensors with no rows.
    """
    if world_size() == 1:
        return value
    leaves: list[Any] = []
    form = take_apart(value, leaves)
    found = exchange([describe_leaf(leaf) for leaf in leaves])
    if any(len(each) != len(leaves) for each in found):
        raise ValueError(
            f"The ranks' parts of the batch have {[len(each) for each in found]} tensors, and cannot be "
            "joined. Load the whole batch on every rank instead."
        )
    wholes = [join_leaf(leaf, [each[i] for each in found]) for i, leaf in enumerate(leaves)]
    return put_together(form, wholes)


def take_apart(value: Any, leaves: list[Any]) -> Any:
    """The form of a value, with the position of each leaf in its place; the leaves go to the list."""
    if isinstance(value, dict):
        return type(value), [(key, take_apart(item, leaves)) for key, item in value.items()]
    if is_nested(value):
        return type(value), [take_apart(item, leaves) for item in value]
    leaves.append(value)
    return len(leaves) - 1


def is_nested(value: Any) -> bool:
    """Whether this is a list or tuple that holds the parts of a batch, and not one plain thing a row."""
    if not isinstance(value, (list, tuple)):
        return False
    parts = (torch.Tensor, tuple, list, dict)
    return hasattr(value, "_fields") or any(isinstance(item, parts) for item in value)


def put_together(form: Any, leaves: Sequence[Any]) -> Any:
    """The value with this form and these leaves."""
    if isinstance(form, int):
        return leaves[form]
    kind, parts = form
    if issubclass(kind, dict):
        return kind((key, put_together(part, leaves)) for key, part in parts)
    items = [put_together(part, leaves) for part in parts]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def describe_leaf(leaf: Any) -> Any:
    """What the other ranks must know of a leaf: a tensor's shape; of anything else, all of it."""
    return leaf.shape if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 else leaf


def join_leaf(own: Any, found: Sequence[Any]) -> Any:
    """One leaf of the whole batch from what every rank said of its own."""
    if isinstance(own, (list, tuple)):
        return type(own)(item for items in found for item in items)
    if not isinstance(own, torch.Tensor) or own.dim() == 0:
        if any(each != found[0] for each in found):
            raise ValueError(f"{found} differ from rank to rank, and there is no telling how to join them.")
        return own
    shapes = [shape for shape in found if shape[0] > 0] or [own.shape]
    if any(shape[1:] != shapes[0][1:] for shape in shapes):
        raise ValueError(
            f"The ranks' rows have different shapes, {[tuple(shape) for shape in found]}, and "
            "cannot be joined. Does collate_fn pad to the longest of its samples? Load the whole batch on "
            "every rank instead."
        )
    rows = own if own.shape[0] > 0 else own.new_empty((0, *shapes[0][1:]))
    return concatenate_ranks(rows, [shape[0] for shape in found])


def own_slice(whole: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of a whole tensor that are this rank's, if rank r has sizes[r] of them."""
    rank = own_rank()
    return whole.narrow(dim, sum(sizes[:rank]), sizes[rank])
