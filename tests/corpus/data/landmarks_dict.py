# corpus: idioms = dict / list / non-tensor / None / raw samples passed to the wrapped forward; len(loader.dataset); shuffle literal True; sampler=; random_split/subset; device_ids from config/args/variable; Variable(); function main/train/run
# corpus: worlds = 2 3 4
# corpus: helpers = WholeBatchDDP
"""Facial landmarks: samples are dicts with a name, batches are dicts; names and boxes are used behind the forward."""
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import RandomSampler, SequentialSampler


class FaceLandmarksDataset(Dataset):
    """Face landmarks dataset."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.randn(n, 8, 8, 1, generator=g)
        self.landmarks = [self.images[i, :2, :, 0].sum(0)[:4] for i in range(n)]

    def __len__(self):
        return len(self.landmarks)

    def __getitem__(self, idx):
        sample = {'image': self.images[idx].permute(2, 0, 1), 'landmarks': self.landmarks[idx].reshape(2, 2)}
        sample['name'] = 'face_%03d.jpg' % idx
        sample['box'] = [idx, float(idx) / 2]
        return {**sample, 'meta': {'idx': idx, 'weight': torch.tensor(1. + idx % 3)}}


class Regressor(nn.Module):
    def __init__(self):
        super(Regressor, self).__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU())
        self.out = nn.Linear(54, 4)

    def forward(self, image, box):
        f = self.features(image).flatten(1)
        return self.out(f).view(-1, 2, 2) + 0 * box[1].float().view(-1, 1, 1), f.pow(2).mean(1)


def main():
    torch.manual_seed(31)
    train_set, val_set = FaceLandmarksDataset(43, 1), FaceLandmarksDataset(11, 2)
    loaders = {'train': DataLoader(train_set, batch_size=8, sampler=RandomSampler(train_set)),
               'val': DataLoader(val_set, batch_size=4, sampler=SequentialSampler(val_set))}
    net = Regressor().cuda()
    net = nn.DataParallel(net, device_ids=list(range(torch.cuda.device_count())))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    worst = ('', 0.)
    for epoch in range(4):
        for phase in ['train', 'val']:
            net.train(phase == 'train')
            total = seen = 0
            for i_batch, batch in enumerate(loaders[phase]):
                image = Variable(batch['image'].cuda())
                box = batch['box']
                with torch.set_grad_enabled(phase == 'train'):
                    out, norm = net(image, box)
                target, weight = batch['landmarks'].cuda(), batch['meta']['weight'].cuda()
                per_sample = (out - target).pow(2).mean((1, 2))
                loss = (per_sample * weight).sum() / weight.sum() + 1e-4 * norm.sum()
                if phase == 'train':
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                w, i = per_sample.max(0)
                if w.item() > worst[1]:
                    worst = (batch['name'][i.item()], w.item())
                total += loss.item() * len(batch['name'])
                seen += len(batch['name'])
            print('epoch %d %s loss %.5f of %d/%d, worst %s' % (
                epoch, phase, total / seen, seen, len(loaders[phase].dataset), worst[0]))


if __name__ == '__main__':
    main()
