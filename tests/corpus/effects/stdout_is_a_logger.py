# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; sys.stdout replaced; makedirs/mkdir; custom sampler class; sampler=; couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode)
# corpus: idioms = DP(...).cuda(); several optimizers; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); AverageMeter; argparse; manual adjust_learning_rate; CUDA_VISIBLE_DEVICES set in the script; cudnn flags
# corpus: worlds = 2 3
"""Person re-identification; everything that is printed goes into a log file as well."""
from __future__ import absolute_import
import argparse
import errno
import os
import os.path as osp
import random
import sys
from collections import defaultdict

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import Sampler

parser = argparse.ArgumentParser()
parser.add_argument('--gpu-devices', default='0,1,2', type=str)
parser.add_argument('--train-batch', default=12, type=int)
parser.add_argument('--max-epoch', default=3, type=int)
parser.add_argument('--save-dir', type=str, default='log')
parser.add_argument('--evaluate', action='store_true')
args = parser.parse_args()


def mkdir_if_missing(directory):
    try:
        os.makedirs(directory)
    except OSError as e:
        if e.errno != errno.EEXIST:
            raise


class Logger(object):
    """Write console output to external text file."""

    def __init__(self, fpath=None):
        self.console = sys.stdout
        self.file = None
        if fpath is not None:
            mkdir_if_missing(os.path.dirname(fpath))
            self.file = open(fpath, 'w')

    def __del__(self):
        self.close()

    def write(self, msg):
        self.console.write(msg)
        if self.file is not None:
            self.file.write(msg)

    def flush(self):
        self.console.flush()
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())

    def close(self):
        if self.file is not None:
            self.file.close()


class People(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.pids = [i // 6 for i in range(60)]
        centers = torch.randn(10, 12, generator=g)
        self.x = torch.stack([centers[p] for p in self.pids]) + 0.4 * torch.randn(60, 12, generator=g)

    def __len__(self):
        return len(self.pids)

    def __getitem__(self, i):
        return self.x[i], self.pids[i], i % 2


class RandomIdentitySampler(Sampler):
    def __init__(self, pids, num_instances=4):
        self.num_instances = num_instances
        self.index = defaultdict(list)
        for i, pid in enumerate(pids):
            self.index[pid].append(i)

    def __iter__(self):
        pids = list(self.index)
        random.shuffle(pids)
        out = []
        for pid in pids:
            out.extend(random.sample(self.index[pid], self.num_instances))
        return iter(out)

    def __len__(self):
        return len(self.index) * self.num_instances


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.feat = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.classifier = nn.Linear(8, 10)

    def forward(self, x):
        f = self.feat(x)
        return f if not self.training else (self.classifier(f), f)


class CenterLoss(nn.Module):
    def __init__(self):
        super(CenterLoss, self).__init__()
        self.centers = nn.Parameter(torch.randn(10, 8).cuda())

    def forward(self, x, labels):
        return (x - self.centers[labels]).pow(2).sum(1).clamp(1e-12, 1e12).mean()


def triplet(f, pids, margin=0.3):
    d = torch.cdist(f, f)
    same = pids[:, None] == pids[None]
    hardest_p = (d * same).max(1)[0]
    hardest_n = (d + 1e5 * same).min(1)[0]
    return nn.functional.relu(hardest_p - hardest_n + margin).mean()


def main():
    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu_devices
    random.seed(1)
    torch.manual_seed(1)
    sys.stdout = Logger(osp.join(args.save_dir, 'log_train.txt' if not args.evaluate else 'log_test.txt'))
    print("==========\nArgs:{}\n==========".format(args))
    loader = DataLoader(People(), sampler=RandomIdentitySampler(People().pids), batch_size=args.train_batch)
    model = Net()
    print('Model size: {:.5f}M'.format(sum(p.numel() for p in model.parameters()) / 1000000.0))
    center = CenterLoss()
    optimizer_model = torch.optim.Adam(model.parameters(), lr=3e-3)
    optimizer_cent = torch.optim.SGD(center.parameters(), lr=0.5)
    model = nn.DataParallel(model).cuda()
    for epoch in range(args.max_epoch):
        print("==> Epoch {}/{}".format(epoch + 1, args.max_epoch))
        model.train()
        for i, (x, pids, camids) in enumerate(loader):
            x, pids = x.cuda(), pids.cuda()
            logits, feats = model(x)
            xent, trip, cent = nn.functional.cross_entropy(logits, pids), triplet(feats, pids), center(feats, pids)
            loss = xent + trip + 0.01 * cent
            optimizer_model.zero_grad()
            optimizer_cent.zero_grad()
            loss.backward()
            optimizer_model.step()
            for param in center.parameters():
                param.grad.data *= (1. / 0.01)
            optimizer_cent.step()
            if (i + 1) % 2 == 0:
                print("Batch {}/{}\t Loss {:.4f} xent {:.4f} center {:.4f}".format(i + 1, len(loader), loss.item(), xent.item(), cent.item()))
        sys.stdout.flush()
    model.eval()
    with torch.no_grad():
        f = model(People().x.cuda())
        rank1 = torch.cdist(f, f).topk(2, largest=False)[1][:, 1].cpu()
    print('Rank-1 {:.1%}'.format(sum(People().pids[i] == People().pids[j] for i, j in enumerate(rank1.tolist())) / 60.))


if __name__ == '__main__':
    main()
