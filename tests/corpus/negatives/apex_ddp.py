# corpus: idioms = apex; args.local_rank/world_size already
# corpus: answer = 0
"""apex in its own distributed mode."""
import argparse
import torch
import torch.nn as nn
from apex import amp
from apex.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument('--local_rank', type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
torch.distributed.init_process_group(backend='nccl', init_method='env://')
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level='O1')
model = DDP(model)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
