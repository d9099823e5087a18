# corpus: idioms = args.local_rank/world_size already; argparse; sampler=
# corpus: answer = 0
"""Started by torchrun already; DataParallel is not in it."""
import argparse
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument('--local_rank', default=int(os.environ.get('LOCAL_RANK', 0)), type=int)
parser.add_argument('--lr', default=0.1, type=float)
args = parser.parse_args()


def main():
    dist.init_process_group('nccl')
    torch.cuda.set_device(args.local_rank)
    model = DDP(nn.Linear(4, 2).cuda(), device_ids=[args.local_rank])
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())


if __name__ == '__main__':
    main()
