# The process group is made, and never destroyed. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
def main():
    dist.init_process_group('nccl')
    train()
if __name__ == '__main__':
    main()
# ---
import torch.multiprocessing as mp
def worker(rank):
    dist.init_process_group('nccl', rank=rank, world_size=2)
mp.spawn(worker, nprocs=2)
# ---
if __name__ == '__main__':
    torch.distributed.init_process_group(backend='nccl')
    train()
