# No rank says which device is its own, so all of them work on GPU 0. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group(backend='nccl')
model = DDP(net.cuda())
# ---
def main():
    dist.init_process_group('nccl')
    net = build().to('cuda')
    model = DDP(net)
main()
# ---
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl")
model = DDP(net.to(device))
# ---
dist.init_process_group("nccl")
model = DDP(net.to("cuda:0"))
# ---
dist.init_process_group("nccl")
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = DDP(net.to(device))
for x, y in loader:
    model(x.to(device)).backward()
# ---
# wrapped
for x, y in loader:
    x = x.to("cuda:0")
    model(x).backward()
# ---
dist.init_process_group("nccl")
model = DDP(net.cuda(0), device_ids=[0])
# ---
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = DDP(net.cuda())
# ---
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
def train(model, loader):
    for x, y in loader:
        x, y = x.to(DEVICE), y.to(DEVICE)
        model(x).sum().backward()
def main():
    dist.init_process_group("nccl")
    model = DDP(net.to(DEVICE))
    train(model, loader)
if __name__ == "__main__":
    main()
# ---
class Trainer:
    def __init__(self, model):
        self.device = "cuda:0"
        self.model = DDP(model.to(self.device))
    def step(self, x):
        self.model(x.to(self.device)).sum().backward()
def main():
    dist.init_process_group("nccl")
    t = Trainer(net)
    for x in batches:
        t.step(x)
if __name__ == "__main__":
    main()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
if torch.cuda.is_available():
    net = net.to("cuda:0")
model = DDP(net)
# ---
import torch.multiprocessing as mp
def main(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DDP(net.to("cuda:0"), device_ids=[0])
    dist.destroy_process_group()
mp.spawn(main, nprocs=2, args=(2,))
