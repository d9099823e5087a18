# All ranks write the same checkpoint file at once. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
for epoch in range(9):
    torch.save(model.state_dict(), f'epoch{epoch}.pt')
# ---
def main():
    dist.init_process_group('nccl')
    model = DDP(net)
    path = os.path.join('out', 'last.pt')
    torch.save(model, path)
if __name__ == '__main__':
    main()
# ---
import torch.multiprocessing as mp
def worker(rank, n):
    dist.init_process_group('nccl', rank=rank, world_size=n)
    model = DDP(net)
    best = 0
    accuracy = test(model)
    if accuracy > best:
        torch.save({'net': model.module.state_dict()}, 'best.pth')
if __name__ == '__main__':
    mp.spawn(worker, args=(2,), nprocs=2)
# ---
# wrapped
for epoch in range(10):
    train(model)
    with open("log.csv", "a") as log:
        log.write(f"{epoch}\n")
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net)
log = open(os.path.join(args.out, "log.txt"), mode="w")
# ---
import numpy as np
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net)
np.save("features.npy", features)
