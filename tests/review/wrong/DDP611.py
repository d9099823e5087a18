# torch refuses this. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
model = DDP(net, device_ids=[0, 1])
# ---
model = nn.parallel.DistributedDataParallel(net, list(range(torch.cuda.device_count())))
# ---
gpus = [0, 1, 2, 3]
model = DDP(net.cuda(), device_ids=gpus, output_device=0)
# ---
model = DDP(net, device_ids=range(torch.cuda.device_count()))
# ---
# wrapped
features = model.extract(x)
# ---
# wrapped
print(model.num_classes)
# ---
class T:
    def __init__(self, net):
        self.net = DDP(net)
    def kept(self):
        return self.net.classifier.weight
# ---
if args.distributed:
    model = DDP(model)
print(model.classes)
# ---
import torch.multiprocessing as mp
def run(r):
    dist.init_process_group('nccl', rank=r, world_size=2)
mp.start_processes(run, nprocs=2, start_method='fork')
# ---
import torch.multiprocessing as mp
def run(r):
    dist.init_process_group('nccl', rank=r, world_size=2)
mp.set_start_method('fork')
mp.spawn(run, nprocs=2)
# ---
import multiprocessing
def run(r):
    dist.init_process_group('nccl', rank=r, world_size=2)
multiprocessing.set_start_method('fork')
multiprocessing.Process(target=run, args=(0,)).start()
# ---
loader = DataLoader(data, shuffle=True, sampler=DistributedSampler(data))
# ---
sampler = DistributedSampler(data, 2, 0)
loader = torch.utils.data.DataLoader(data, 8, True, sampler)
# ---
class T:
    def __init__(self):
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, sampler=self.sampler, shuffle=True)
# ---
loss = dist.all_reduce(loss)
print(loss.item())
# ---
mean = dist.all_reduce(x) / dist.get_world_size()
# ---
from torch.distributed import all_gather
def collect(x, parts):
    return torch.cat(all_gather(parts, x))
# ---
def total(x):
    y = dist.reduce(x, 0)
    return y + 1
