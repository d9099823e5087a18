# corpus: answer = 0
"""Fully sharded: another kind of parallelism, started by torchrun."""
import functools
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

dist.init_process_group('nccl')
torch.cuda.set_device(dist.get_rank())
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
model = FSDP(torch.nn.Linear(100, 100).cuda(), auto_wrap_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    loss = model(torch.randn(8, 100).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
