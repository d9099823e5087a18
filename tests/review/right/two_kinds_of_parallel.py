"""FSDP for the large part, DDP for the small one; groups within and across nodes; checkpoints by distributed.checkpoint."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def main(trunk, head, batches):
    dist.init_process_group("cpu:gloo,cuda:nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    mesh = init_device_mesh("cuda", (dist.get_world_size() // 8, 8), mesh_dim_names=("dp", "tp"))
    dp_group, tp_group = mesh["dp"].get_group(), mesh["tp"].get_group()
    leaders = dist.new_group(ranks=list(range(0, dist.get_world_size(), 8)))
    trunk = FSDP(trunk.cuda(), process_group=dp_group, device_id=local_rank)
    head = DDP(head.cuda(), device_ids=[local_rank], process_group=dp_group)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *head.parameters()], lr=1e-4)
    tp_rank = dist.get_rank(tp_group)
    for step, (x, y) in enumerate(batches):
        if tp_rank == 0:
            x = x.cuda()
        dist.broadcast(x, src=dist.get_global_rank(tp_group, 0), group=tp_group)
        loss = torch.nn.functional.cross_entropy(head(trunk(x)), y.cuda())
        loss.backward()
        trunk.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen = torch.tensor(len(y), device="cuda")
        if local_rank == 0:
            dist.all_reduce(seen, group=leaders)
            if dist.get_rank() == 0:
                print(step, seen.item())
        if step % 1000 == 0:
            state = {"trunk": trunk.state_dict(), "head": head.module.state_dict()}
            dcp.save(state, checkpoint_id=f"step{step}")
    dist.barrier()
    dist.destroy_process_group()
