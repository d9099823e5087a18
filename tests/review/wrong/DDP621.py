# Ranks are forked: NCCL and CUDA do not outlive a fork. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
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
