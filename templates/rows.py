"""Rows that lie on different ranks, brought together in rank order."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed

from .process import own_rank, world_size


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


def from_all_ranks(own: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """torch.cat of what the ranks bring; all of them have to come here."""
    if world_size() == 1:
        raise RuntimeError(
            "These rows lie on several ranks, and only one rank asks for all of them. Ask where all ranks come by."
        )
    if RowsMade.in_replica:
        raise RuntimeError(
            "The wrapped module's forward asks for rows that other ranks have: of a tensor that is no argument of it, "
            "but in an object, say, or a global name. Give it as an argument, or let rank 0 load the batches: "
            "dp2ddp convert --data share."
        )
    if threading.get_ident() != RowsMade.thread and is_thread_beside():
        raise RuntimeError(
            "A thread asks for rows of the other ranks, whose threads go at their own pace. Hand the thread "
            "x.detach().cpu().numpy(), which is the whole."
        )
    return concatenate_ranks(own, sizes, dim)


class RowsMade:
    """The thread in which the script runs the wrapped model, and takes its batches: there the ranks go side by side."""

    thread = threading.get_ident()
    in_replica = False  # there a rank goes by itself: some may have no replica to run, or not yet


@contextlib.contextmanager
def inside_replica() -> Iterator[None]:
    """The time in which a rank runs its replica."""
    before, RowsMade.in_replica = RowsMade.in_replica, True
    try:
        yield
    finally:
        RowsMade.in_replica = before


def is_thread_beside() -> bool:
    """Whether this is neither Python's first thread nor one of autograd's."""
    thread = threading.current_thread()
    return thread is not threading.main_thread() and not isinstance(thread, threading._DummyThread)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as a vector of bytes."""
    return tensor.reshape(-1).view(torch.uint8)


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


def join_leaf(leaves: Sequence[Any]) -> Any:
    """One leaf of the whole batch, from every rank's own: lists and arrays in rank order, anything else as it is."""
    own = leaves[0]
    if isinstance(own, (list, tuple)):
        return type(own)(item for items in leaves for item in items)
    if hasattr(own, "shape") and own.shape:
        parts = [torch.as_tensor(each) for each in leaves]
        return torch.cat([part for part in parts if part.shape[0]] or parts).numpy()
    if any(each != own for each in leaves):
        raise ValueError(f"{leaves} differ from rank to rank, and there is no telling how to join them.")
    return own


def own_slice(whole: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of a whole tensor that are this rank's, if rank r has sizes[r] of them."""
    rank = own_rank()
    return whole.narrow(dim, sum(sizes[:rank]), sizes[rank])
