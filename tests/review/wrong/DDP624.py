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
# ---
import subprocess, sys
subprocess.run([sys.executable, '-m', 'torch.distributed.launch', 'train.py'])
# ---
os.system('python -m torch.distributed.launch --nproc_per_node 2 train.py')
# ---
import subprocess
subprocess.Popen('python3 -m torch.distributed.launch t.py', shell=True)
