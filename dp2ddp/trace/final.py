"""What is known when a script ends: what its models hold, and what it asked for that virtual devices leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dp2ddp.trace.records import Final, FinalKind, Unchecked
from dp2ddp.trace.tensor_names import Table, by_shortest_name, living_roots, named_tensors, tensor_tables
from dp2ddp.trace.tensors import bytes_of, laid_out, vector_of
from dp2ddp.trace.writer import FULL_BYTES

_WHOLE = FULL_BYTES // 4


class Models:
    """Holds tables of tensors, so that they can be read when the function that made the models has returned."""

    def __init__(self) -> None:
        self._tables: dict[int, Table] = {}
        self._room = FULL_BYTES
        self._gradients: tuple[int, frozenset[int]] = (-1, frozenset())  # backward pass, where they lie

    def look(self, roots: Iterable[nn.Module]) -> None:
        """Remember the tables of parameters and buffers of these models, while there is room."""
        for name, table in tensor_tables(roots):
            if id(table) not in self._tables and self._room > 0:
                self._room -= bytes_of(list(table.values()))
                self._tables[id(table)] = (name, table)

    def kind_of(self, tensor: torch.Tensor, backwards: int) -> str:
        """parameters, gradients, tensors; "" for what no training hangs on: flags, counts and single numbers.

        `backwards`: how many backward passes there were; the gradients are looked for once in each.
        """
        if isinstance(tensor, nn.Parameter):
            return "parameters"
        if torch._C._current_graph_task_id() != -1 or self._is_gradient(tensor, backwards):
            return "gradients"
        counts = tensor.dtype in (torch.bool, torch.int32, torch.int64)
        return "" if counts or tensor.numel() <= 1 else "tensors"

    def _is_gradient(self, tensor: torch.Tensor, backwards: int) -> bool:
        if self._gradients[0] != backwards:
            tensors = (each for _, table in self._tables.values() for each in table.values())
            addresses = frozenset(
                each.grad.data_ptr()
                for each in tensors
                if isinstance(each, nn.Parameter) and each.grad is not None
            )
            self._gradients = backwards, addresses
        return tensor.layout == torch.strided and tensor.data_ptr() in self._gradients[1]

    def final(self, stepped: Mapping[int, int], whole: bool) -> Final:
        """`stepped`: id of a parameter -> hash of what its last step left. `whole`: values, where there is room."""
        tables = self._tables | {id(table): (name, table) for name, table in tensor_tables(living_roots())}
        layout, tensors = laid_out(by_shortest_name(named_tensors(tables.values())).values())
        vector = vector_of(tensors, layout, whole=whole and bytes_of(tensors) <= _WHOLE)
        hashes = map(int, vector.hashes)
        kinds = [_kind_of(tensor, hashed, stepped) for tensor, hashed in zip(tensors, hashes, strict=True)]
        return Final(vector, np.array(kinds, dtype=np.uint8))


def _kind_of(tensor: torch.Tensor, hashed: int, stepped: Mapping[int, int]) -> FinalKind:
    if not isinstance(tensor, nn.Parameter):
        return FinalKind.BUFFER
    last = stepped.get(id(tensor))
    if last is None:
        return FinalKind.UNSTEPPED
    return FinalKind.SETTLED if last == hashed else FinalKind.CHANGED


def unchecked_of_optimizer(optimizer: Any) -> Iterator[Unchecked]:
    """What an optimizer that takes a step asks for."""
    if any(group.get("fused") for group in optimizer.param_groups):
        yield Unchecked.FUSED


def unchecked_settings() -> Iterator[Unchecked]:
    """What a script has asked for by settings of torch that are not the usual ones, when it ends."""
    settings: tuple[tuple[Unchecked, Callable[[], bool]], ...] = (
        (Unchecked.TF32, lambda: torch.get_float32_matmul_precision() != "highest"),
        (Unchecked.CUDNN, lambda: torch.backends.cudnn.benchmark or torch.backends.cudnn.deterministic),
    )
    for each, is_set in settings:
        try:
            if is_set():
                yield each
        except RuntimeError:  # torch cannot put into old words what newer settings (fp32_precision) say
            yield each
