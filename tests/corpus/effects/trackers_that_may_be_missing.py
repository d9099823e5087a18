# corpus: idioms = nn.DataParallel; module level, under if __name__; rebinds the same name; device_count() > 1; visdom; wandb; tensorboard; tqdm/progress bar; DP(...).to(device); device_count() used
# corpus: idioms = shuffle literal True; random_split/subset; lr_scheduler; best selection; early stopping; torch.load; torch.save; np.random/random seed
# corpus: worlds = 2 3
"""Weather regression with every tracker there is; those that are not installed are left out."""
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm, trange

try:
    import wandb
except ImportError:
    wandb = None

try:
    import visdom
    viz = visdom.Visdom(env='weather')
except Exception:
    class FakeViz:
        def __init__(self):
            self.lines = 0

        def line(self, Y, X, win=None, update=None, opts=None):
            self.lines += len(Y)
            return win or 'window'

    viz = FakeViz()

try:
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
except ImportError:
    plt = None


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


if __name__ == '__main__':
    set_seed(21)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    if wandb is not None:
        wandb.init(project='weather', config={'lr': 0.01})
    x = torch.rand(40, 9)
    y = (x * torch.linspace(-1, 1, 9)).sum(1, keepdim=True) + 0.1 * torch.randn(40, 1)
    train_set, val_set = random_split(TensorDataset(x, y), [21, 19])
    loader = DataLoader(train_set, 10, shuffle=True)
    net = nn.Sequential(nn.Linear(9, 20), nn.LayerNorm(20), nn.GELU(), nn.Dropout(0.2), nn.Linear(20, 1))
    if torch.cuda.device_count() > 1:
        print('GPUs:', torch.cuda.device_count())
        net = nn.DataParallel(net)
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], 0.5)
    writer = SummaryWriter(log_dir='runs/weather', comment='_x')
    win, best, history = None, float('inf'), []
    for epoch in trange(3, desc='epochs'):
        net.train()
        bar = tqdm(loader, total=len(loader), ncols=80)
        for i, (a, b) in enumerate(bar):
            loss = nn.functional.smooth_l1_loss(net(a.to(device)), b.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.set_description('loss %.4f' % loss.item())
            writer.add_scalar('loss', loss, epoch * len(loader) + i)
            if wandb is not None:
                wandb.log({'loss': loss.item()})
            history.append(loss.item())
            win = viz.line(Y=np.array([loss.item()]), X=np.array([len(history)]), win=win, update='append' if win else None)
        scheduler.step()
        net.eval()
        with torch.no_grad():
            val = sum(nn.functional.smooth_l1_loss(net(a.to(device)), b.to(device), reduction='sum').item() for a, b in DataLoader(val_set, 8)) / len(val_set)
        tqdm.write('epoch %d val %.5f' % (epoch, val))
        writer.add_scalars('val', {'loss': val, 'lr': scheduler.get_last_lr()[0]}, epoch)
        for name, p in net.named_parameters():
            writer.add_histogram(name, p.detach().cpu().numpy(), epoch)
        if val < best:
            best = val
            torch.save(net.state_dict(), 'best.pt')
    if plt is not None:
        plt.plot(history)
        plt.savefig('loss.png')
    writer.flush()
    writer.close()
    net.load_state_dict(torch.load('best.pt', map_location=device))
    print('points drawn', viz.lines if hasattr(viz, 'lines') else None, 'best %.5f' % best, 'env', 'weather')
