"""Ranks that run their replicas one after another, on what the threads of one process would share."""

import torch

from .arguments import Part
from .ddp import GraphDDP, ReplicaReport, called_data_parallel
from .process import exchange, own_rank, random_streams, set_random_streams, world_size
from .shared_state import SharedState


@called_data_parallel
class InTurnDDP(GraphDDP):
    """GraphDDP for modules that draw random numbers on the host, fill lists there, or write to parameters' data.

    DataParallel's replicas are threads, which share all that. Here each rank runs its replica when the rank before
    is done, and goes on from the random streams, and with the lists, that it left. Backward runs on all at once.
    """

    in_turn = True

    def run_replica(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        report = ReplicaReport(())
        memory = SharedState(self.module)
        for turn in range(world_size()):
            if turn == own_rank():
                report = super().run_replica(part, copies, tensors)
            mine = (self.host_streams(random_streams()), memory.changes()) if turn == own_rank() else None
            streams, news = exchange(mine)[turn]
            set_random_streams(streams)
            memory.follow(turn, news, self.device)
        vars(self)["memory"] = memory
        return report

    def bring_zero_gradients(self, link: torch.Tensor) -> torch.Tensor:
        """The link; and on all ranks, what the replicas kept."""
        link, memory = super().bring_zero_gradients(link), vars(self).pop("memory")
        memory.finish(lambda rank, meta: self.tensor_of(rank, meta, memory.fresh, link))
        return link
