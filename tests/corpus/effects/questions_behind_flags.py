# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; input() prompt / pdb; rmtree/copy of code; argparse; torch.manual_seed; unconditional
# corpus: idioms = shuffle literal True; DP(...).cuda(); torch.save; __name__ guard; try/except around step (OOM/KeyboardInterrupt); text/csv/json log file
# corpus: worlds = 2 3 4
"""Sound source counting; asks before it removes something, and stops in the debugger if told to."""
import argparse
import os
import pdb
import shutil
import sys

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument('-d', '--dir', default='models')
ap.add_argument('-f', '--force', action='store_true', help='do not ask')
ap.add_argument('--debug', action='store_true')
args = ap.parse_args()


def prepare(path):
    if os.path.exists(path):
        key = 'y' if args.force else input('Folder exists. Remove? [y/n] ')
        if key.lower() != 'y':
            sys.exit(1)
        shutil.rmtree(path)
    os.makedirs(path)


def main():
    prepare(args.dir)
    torch.manual_seed(99)
    x = torch.randn(50, 16)
    y = (x[:, :4] > 0.5).sum(1).clamp(max=3)
    loader = DataLoader(TensorDataset(x, y), batch_size=11, shuffle=True)
    net = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 4))
    net = nn.DataParallel(net).cuda()
    optimizer = optim.SGD(net.parameters(), lr=0.2)
    for epoch in range(2):
        for x, y in loader:
            out = net(x.cuda())
            loss = nn.functional.cross_entropy(out, y.cuda())
            if args.debug and torch.isnan(loss):
                pdb.set_trace()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print('epoch', epoch, 'loss %.5f' % loss.item())
        torch.save(net.state_dict(), os.path.join(args.dir, 'e%d.pth' % epoch))


if __name__ == '__main__':
    try:
        main()
    except Exception as e:
        if args.debug:
            pdb.post_mortem()
        raise
