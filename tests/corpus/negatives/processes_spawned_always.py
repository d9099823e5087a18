# corpus: idioms = nn.DataParallel; multiprocessing/threads/queues for data
# corpus: answer = 1 DDP906:21
"""A process for each experiment, each with DataParallel over all GPUs."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn


def experiment(index, lr):
    model = nn.DataParallel(nn.Linear(4, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr * (index + 1))
    for step in range(8):
        loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(index, loss.item())


if __name__ == '__main__':
    mp.spawn(experiment, args=(0.1,), nprocs=3)
