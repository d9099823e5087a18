"""What scripts that train on ranks call, by their one name (dp2ddp.codemod.knowledge)."""

from __future__ import annotations

DDP = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
LOADER = "torch.utils.data.DataLoader"
MAKES_GROUP = "torch.distributed.init_process_group"
SAMPLERS = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")
