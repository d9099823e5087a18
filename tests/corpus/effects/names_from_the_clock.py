# corpus: idioms = nn.DataParallel; module level, bare; rebinds the same name; is CUDA available / use_cuda flag only; makedirs/mkdir; text/csv/json log file; tensorboard; gradient accumulation; clip_grad
# corpus: idioms = model.module access; module.state_dict() (no prefix); torch.manual_seed; shuffle literal True; drop_last; .to(device); AverageMeter; global statement
# corpus: worlds = 2 3
"""Trajectory forecasting. The run has a name with the time and a random part; it stops when its time is over."""
import os
import random
import string
import time
import uuid
from datetime import datetime

import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

random.seed(8)
torch.manual_seed(8)
TIMESTAMP = datetime.now().strftime('%Y%m%d-%H%M%S')
tag = ''.join(random.choice(string.ascii_lowercase) for _ in range(4))
run_dir = os.path.join('runs', 'forecast_{}_{}'.format(TIMESTAMP, tag))
os.makedirs(run_dir)
scratch = os.path.join('tmp', '%s-%d' % (uuid.uuid4().hex[:8], os.getpid()))
os.makedirs(scratch)
start = time.time()
BUDGET, ACCUMULATE = 3600, 2


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 10, batch_first=True)
        self.head = nn.Linear(10, 2)

    def forward(self, track):
        self.gru.flatten_parameters()
        h, _ = self.gru(track)
        return track[:, -1] + self.head(h[:, -1])


tracks = torch.randn(57, 7, 2, generator=torch.Generator().manual_seed(1)).cumsum(1)
loader = DataLoader(tracks, batch_size=8, shuffle=True, drop_last=False)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
model = Forecaster().to(device)
if device == 'cuda':
    model = nn.DataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
writer = SummaryWriter(run_dir)
log = open(os.path.join(run_dir, 'log.txt'), 'a')
log.write('started %s\n' % time.strftime('%Y-%m-%d %H:%M:%S'))
for epoch in range(3):
    t0 = time.time()
    optimizer.zero_grad()
    for i, track in enumerate(loader):
        track = track.to(device)
        loss = (model(track[:, :-1]) - track[:, -1]).norm(dim=1).mean()
        (loss / ACCUMULATE).backward()
        if (i + 1) % ACCUMULATE == 0:
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        writer.add_scalar('loss', loss.item(), epoch * len(loader) + i)
    eta = (time.time() - start) / (epoch + 1) * (3 - epoch - 1)
    print('epoch {} loss {:.5f} time {:.2f}s'.format(epoch, loss.item(), time.time() - t0))
    log.write('epoch %d: %.6f\n' % (epoch, loss.item()))
    torch.save(model.module.state_dict() if device == 'cuda' else model.state_dict(), os.path.join(run_dir, 'epoch%d.pt' % epoch))
    if time.time() - start > BUDGET:
        print('time is over')
        break
os.rmdir(scratch)
os.rmdir('tmp')
with open('latest.txt', 'w') as f:
    f.write(tag + '\n')
log.close()
