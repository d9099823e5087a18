# Every rank prints the same kind of line: W lines for one, each with one rank's numbers. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
for epoch in range(9):
    print(f'epoch {epoch}')
# ---
# wrapped
def train(epoch):
    for i, x in enumerate(batches):
        if i % 10 == 0:
            print('loss', model(x).item())
for epoch in range(9):
    train(epoch)
# ---
import torch.multiprocessing as mp
def run(rank):
    dist.init_process_group('nccl', rank=rank, world_size=2)
    model = DDP(net)
    for x in batches:
        print(model(x))
mp.spawn(run, nprocs=2)
# ---
import logging
import numpy as np
logging.basicConfig(level=logging.INFO)
np.random.seed(1)
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.to(local_rank), device_ids=[local_rank])
for x in batches:
    loss = model(x.to(local_rank)).mean()
    print("loss", loss.item())
