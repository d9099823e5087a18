# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); several optimizers; custom sampler class; lr_scheduler
# corpus: worlds = 2 3
"""Person re-identification: identity loss + batch-hard triplet + center loss with an optimizer of its own."""
import random
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import Sampler

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class Market(Dataset):
    def __init__(self, pids=7, shots=6):
        rng = np.random.RandomState(5)
        self.data = [(rng.randn(pids_dim).astype('float32') + 0.3 * pid, pid, int(rng.randint(3)))
                     for pid in range(pids) for _ in range(shots) for pids_dim in (10,)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        img, pid, camid = self.data[index]
        return torch.from_numpy(img), pid, camid


class RandomIdentitySampler(Sampler):
    """P identities times K instances."""
    def __init__(self, data_source, num_instances=4):
        self.data_source = data_source
        self.num_instances = num_instances
        self.index_dic = defaultdict(list)
        for index, (_, pid, _) in enumerate(data_source.data):
            self.index_dic[pid].append(index)
        self.pids = list(self.index_dic.keys())

    def __iter__(self):
        indices = torch.randperm(len(self.pids))
        ret = []
        for i in indices:
            t = self.index_dic[self.pids[i]]
            t = np.random.choice(t, size=self.num_instances, replace=False)
            ret.extend(t)
        return iter(ret)

    def __len__(self):
        return len(self.pids) * self.num_instances


class TripletLoss(object):
    def __init__(self, margin=None):
        self.margin = margin
        self.ranking_loss = nn.MarginRankingLoss(margin=margin) if margin is not None else nn.SoftMarginLoss()

    def __call__(self, feat, labels):
        dist = torch.cdist(feat, feat)
        same = labels.expand(len(labels), -1).eq(labels.expand(len(labels), -1).t())
        dist_ap = dist.masked_fill(~same, -1).max(1)[0]
        dist_an = dist.masked_fill(same, 1e6).min(1)[0]
        y = torch.ones_like(dist_an)
        if self.margin is not None:
            return self.ranking_loss(dist_an, dist_ap, y), dist_ap, dist_an
        return self.ranking_loss(dist_an - dist_ap, y), dist_ap, dist_an


class CenterLoss(nn.Module):
    def __init__(self, num_classes=7, feat_dim=12):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim).cuda())

    def forward(self, x, labels):
        distmat = torch.cdist(x, self.centers) ** 2
        mask = labels.unsqueeze(1).eq(torch.arange(len(self.centers)).to(labels.device))
        return (distmat * mask.float()).clamp(min=1e-12, max=1e+12).sum() / x.size(0)


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 12))
        self.bottleneck = nn.BatchNorm1d(12)
        self.bottleneck.bias.requires_grad_(False)  # no shift
        self.classifier = nn.Linear(12, 7, bias=False)

    def forward(self, x):
        global_feat = self.base(x)
        feat = self.bottleneck(global_feat)
        if self.training:
            return self.classifier(feat), global_feat
        return feat


def main():
    dataset = Market()
    train_loader = DataLoader(dataset, batch_size=12, sampler=RandomIdentitySampler(dataset), drop_last=False)
    val_loader = DataLoader(dataset, batch_size=9, shuffle=False)
    model = Baseline().cuda()
    center_criterion = CenterLoss()
    params = []
    for key, value in model.named_parameters():
        if not value.requires_grad:
            continue
        lr, wd = (0.002, 0) if 'bias' in key else (0.001, 5e-4)
        params += [{'params': [value], 'lr': lr, 'weight_decay': wd}]
    optimizer = torch.optim.Adam(params)
    optimizer_center = torch.optim.SGD(center_criterion.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.3)
    triplet = TripletLoss(0.3)
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)

    for epoch in range(5):
        model.train()
        for n_iter, (img, pid, camid) in enumerate(train_loader):
            optimizer.zero_grad()
            optimizer_center.zero_grad()
            img, target = img.cuda(), pid.cuda()
            score, feat = model(img)
            tri, dist_ap, dist_an = triplet(feat, target)
            cen = center_criterion(feat, target)
            loss = F.cross_entropy(score, target) + tri + 0.05 * cen
            loss.backward()
            optimizer.step()
            for param in center_criterion.parameters():
                param.grad.data *= (1. / 0.05)
            optimizer_center.step()
            acc = (score.max(1)[1] == target).float().mean()
            prec = (dist_an > dist_ap).float().mean()
            print('Epoch[{}] Iter[{}/{}] Loss: {:.4f}, center {:.4f}, Acc: {:.3f}, Prec {:.3f}'.format(
                epoch, n_iter, len(train_loader), loss.item(), cen.item(), acc.item(), prec.item()))
        scheduler.step()
    model.eval()
    with torch.no_grad():
        feats = torch.cat([model(img.cuda()) for img, _, _ in val_loader])
        feats = F.normalize(feats)
        pids = torch.tensor([pid for _, pid, _ in dataset.data])
        sim = feats @ feats.t() - 2 * torch.eye(len(feats), device=feats.device)
        rank1 = (pids[sim.max(1)[1].cpu()] == pids).float().mean()
    print('Rank-1: {:.1%}'.format(rank1.item()))
    torch.save(model.state_dict(), 'resnet_reid.pth')
    torch.save(optimizer_center.state_dict(), 'center_param.pth')


if __name__ == '__main__':
    main()
