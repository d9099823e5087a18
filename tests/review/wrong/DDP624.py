# torch has renamed this, or taken it away. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.all_reduce(x, op=dist.reduce_op.SUM)
# ---
from torch.cuda.amp import GradScaler
scaler = GradScaler()
# ---
with torch.cuda.amp.autocast():
    y = DDP(net)(x)
# ---
model = nn.parallel.DistributedDataParallelCPU(net)
dist.barrier()
# ---
torch.distributed.all_reduce_multigpu([x])
