# corpus: idioms = argparse; other
# corpus: answer = 1 DDP902:12
"""The kind of parallelism is a string on the command line."""
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--parallel', default='DataParallel')
args = parser.parse_args()
model = nn.Linear(4, 2).cuda()
model = getattr(nn, args.parallel)(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    x, y = torch.randn(8, 4).cuda(), torch.randint(0, 2, (8,)).cuda()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
