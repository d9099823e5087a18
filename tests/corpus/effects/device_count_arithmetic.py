# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; device_ids=range(device_count()); device_count() > 1; batch size multiplied by the number of GPUs in the script
# corpus: idioms = device_count() used; args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters); sampler=; lr_scheduler; DP(...).to(device); dict or list of loaders; 'cuda:0' literal; np.random/random seed
# corpus: worlds = 2 3 4
# Depth from one image. Batch size and learning rate are per GPU in the config.
import os
import random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

BATCH_PER_GPU = 3
LR_PER_GPU = 0.01


def seed_everything(seed=1234):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


class Rooms(Dataset):
    def __init__(self, n=50):
        rs = np.random.RandomState(1)
        self.rgb = rs.rand(n, 3, 5, 5).astype('float32')
        self.depth = self.rgb.mean(1, keepdims=True) ** 2

    def __len__(self):
        return len(self.rgb)

    def __getitem__(self, i):
        return {'image': self.rgb[i], 'depth': self.depth[i], 'name': 'room_%02d' % i}


class DepthNet(nn.Module):
    def __init__(self):
        super(DepthNet, self).__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ELU(), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        return self.net(x).exp()


def silog(pred, gt, batch_size):
    # batch_size is the full one: a short batch counts less
    d = torch.log(pred) - torch.log(gt)
    return (d ** 2).mean((1, 2, 3)).sum() / batch_size - 0.5 * (d.mean() ** 2)


def main():
    seed_everything()
    n_gpu = torch.cuda.device_count()
    device = torch.device('cuda:0' if n_gpu > 0 else 'cpu')
    batch_size = BATCH_PER_GPU * max(1, n_gpu)
    lr = LR_PER_GPU * n_gpu
    workers = 0 if n_gpu < 8 else 2 * n_gpu
    dataset = Rooms()
    indices = list(range(len(dataset)))
    random.shuffle(indices)
    loaders = {
        'train': DataLoader(dataset, batch_size, sampler=SubsetRandomSampler(indices[:37]), num_workers=workers),
        'val': DataLoader(dataset, batch_size, sampler=SubsetRandomSampler(indices[37:]), num_workers=workers),
    }
    model = DepthNet()
    if n_gpu > 1:
        print('Using %d GPUs: batch %d, lr %.4f' % (n_gpu, batch_size, lr))
        model = nn.DataParallel(model, device_ids=list(range(n_gpu))).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    steps_per_epoch = 37 // batch_size
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=max(1, 2 * steps_per_epoch), gamma=0.5)
    seen = 0
    for epoch in range(3):
        for phase in ['train', 'val']:
            model.train(phase == 'train')
            running_loss = 0.0
            for step, sample in enumerate(loaders[phase]):
                image, depth = sample['image'].to(device), sample['depth'].to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == 'train'):
                    loss = silog(model(image), depth, batch_size)
                if phase == 'train':
                    loss.backward()
                    optimizer.step()
                    scheduler.step()
                    seen += image.shape[0]
                    if step % n_gpu == 0:
                        print('  step', step, 'first', sample['name'][0], 'loss %.5f' % loss.item())
                running_loss += loss.item() * batch_size
            print('%s epoch %d loss %.5f lr %.5f seen %d' % (
                phase, epoch, running_loss / len(loaders[phase]), scheduler.get_last_lr()[0], seen))


if __name__ == '__main__':
    main()
