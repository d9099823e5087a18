"""Forwards that print, or write into weights, and leave nothing else that other replicas see."""

import io
from contextlib import redirect_stdout
from typing import Any, Dict, List

import torch
import torch.distributed as dist

from .broadcast import Rank
from .model import WholeBatch
from .rows import OwnRows


class WholeBatchPrinting(WholeBatch):
    """WholeBatch for a model whose forward prints: all replicas are heard, one after another."""

    stands_for_data_parallel = True

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        with redirect_stdout(io.StringIO()) as printed:
            outputs = super().run_replica(replica, has_rows, inputs, kwargs)
        texts: List[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(texts, printed.getvalue() if has_rows else "", Rank.host)
        print(*texts, sep="", end="")
        return outputs


class WholeBatchWriting(WholeBatch):
    """WholeBatch for a model whose forward writes into the .data of its weights: replica 0's stay."""

    stands_for_data_parallel = True

    def run_replicas(self, rows: OwnRows, copies: Any, batch: Any) -> Any:
        rows.writes_data = True
        return super().run_replicas(rows, copies, batch)

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        own: Dict[int, torch.Tensor] = {}  # on ranks > 0, where writing into `p.data` must change no others
        for part in replica.modules() if dist.get_rank() else ():
            for name, parameter in [*part._former_parameters.items()]:
                setattr(part, name, own.setdefault(id(parameter), parameter.clone()))
        return super().run_replica(replica, has_rows, inputs, kwargs)
