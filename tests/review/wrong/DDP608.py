# A collective stands where only one rank comes by: the others never meet it. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
if dist.get_rank() == 0:
    save()
    dist.barrier()
# ---
# wrapped
is_main = local_rank == 0
if is_main:
    dist.all_reduce(x)
# ---
def log(loss, args):
    if not args.distributed or args.rank == 0:
        torch.distributed.reduce(loss, 0)
# ---
from torch.distributed import barrier
def f(rank):
    if rank != 0:
        return
    barrier()
# ---
import torch.multiprocessing as mp
def run(i, n):
    dist.init_process_group('gloo', rank=i, world_size=n)
    if i == 0:
        dist.barrier()
mp.spawn(run, args=(2,), nprocs=2)
# ---
import torch.multiprocessing as mp
def main_worker(gpu, args):
    train(gpu)
    if gpu == 0:
        dist.barrier()
mp.spawn(main_worker, nprocs=4, args=(args,))
# ---
def mean_over_ranks(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()
def log(loss):
    if dist.get_rank() == 0:
        print(mean_over_ranks(loss))
# ---
class T:
    def save(self, path):
        torch.save(self.model.state_dict(), path)
        dist.barrier()
    def fit(self, rank):
        if rank == 0:
            self.save('a.pt')
# ---
class Trainer:
    def __init__(self, model):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.gpu_id), device_ids=[self.gpu_id])
    def save(self):
        if self.gpu_id == 0:
            torch.save(self.model.module.state_dict(), "last.pt")
            dist.barrier()
# ---
class Trainer:
    def __init__(self, model, gpu_id):
        self.gpu_id = gpu_id
        self.model = DDP(model.to(gpu_id), device_ids=[gpu_id])
    def train(self):
        for epoch in range(10):
            self.run(epoch)
            if not self.gpu_id:
                dist.barrier()
def main(rank, world_size):
    Trainer(net, rank).train()
torch.multiprocessing.spawn(main, args=(2,), nprocs=2)
# ---
args.gpu = int(os.environ["LOCAL_RANK"])
for epoch in range(3):
    if args.gpu != 0:
        continue
    dist.all_reduce(x)
# ---
dist.get_rank() == 0 and dist.barrier()
# ---
x = dist.all_reduce(x) if local_rank == 0 else None
# ---
rank, gpu = dist.get_rank(), int(os.environ["LOCAL_RANK"])
if gpu == 0:
    dist.barrier()
