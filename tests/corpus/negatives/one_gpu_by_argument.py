# corpus: idioms = nn.DataParallel; device_ids from config/args/variable; device_ids names a single GPU (DP is a no-op used for the "module." prefix); argparse
# corpus: answer = 0 DDP201:11
"""--gpu names the one device that is used."""
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--gpu', default=0, type=int)
args = parser.parse_args()
model = nn.DataParallel(nn.Linear(4, 2).cuda(args.gpu), device_ids=[args.gpu])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda(args.gpu)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
