"""Each rank keeps a checkpoint of its own (random states, its place in the data), and reads that one."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

from project import net, stream  # noqa: E402

model = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
path = os.path.join("state", f"rank{rank}.pt")
if os.path.exists(path):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    torch.set_rng_state(state["rng"].cpu())
for step, batch in enumerate(stream(rank)):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 1000 == 0:
        torch.save({"model": model.state_dict(), "rng": torch.get_rng_state()}, path)
dist.destroy_process_group()
