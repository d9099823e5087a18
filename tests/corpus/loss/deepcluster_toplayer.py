# corpus: idioms = optimizer created (or re-created) inside the epoch loop or train(); parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); submodule obj.attr = DP(obj.attr); optimizer created before wrap; several optimizers
# corpus: worlds = 2 3
"""Deep clustering: features are clustered every epoch, the top layer is thrown away and begun anew with its own optimizer."""
import argparse
import os
import pickle

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class VGGish(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(6 * 9, 12), nn.ReLU(True))
        self.top_layer = nn.Linear(12, 4)

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), -1)
        x = self.classifier(x)
        if self.top_layer:
            x = self.top_layer(x)
        return x


class Reassigned(Dataset):
    def __init__(self, x, labels):
        self.x, self.labels = x, labels

    def __getitem__(self, i):
        return self.x[i], int(self.labels[i])

    def __len__(self):
        return len(self.x)


def kmeans(x, k, rng, iters=5):
    centres = x[rng.choice(len(x), k, replace=False)]
    for _ in range(iters):
        assign = ((x[:, None] - centres[None]) ** 2).sum(2).argmin(1)
        for j in range(k):
            if (assign == j).any():
                centres[j] = x[assign == j].mean(0)
    return assign


def compute_features(dataloader, model, N):
    model.eval()
    for i, (input_tensor, _) in enumerate(dataloader):
        with torch.no_grad():
            aux = model(input_tensor.cuda()).data.cpu().numpy()
        if i == 0:
            features = np.zeros((N, aux.shape[1]), dtype='float64')
        features[i * args.batch: i * args.batch + len(aux)] = aux
    return features


def train(loader, model, crit, opt, epoch):
    model.train()
    optimizer_tl = torch.optim.SGD(model.top_layer.parameters(), lr=args.lr, weight_decay=10 ** args.wd)
    total, n = 0., 0
    for i, (input_tensor, target) in enumerate(loader):
        target = target.cuda()
        output = model(input_tensor.cuda())
        loss = crit(output, target)
        opt.zero_grad()
        optimizer_tl.zero_grad()
        loss.backward()
        opt.step()
        optimizer_tl.step()
        total, n = total + loss.item() * len(target), n + len(target)
        if i % 2 == 0:
            print('Epoch: [{0}][{1}/{2}] Loss: {3:.5f}'.format(epoch, i, len(loader), loss.item()))
    return total / n


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--lr', default=0.05, type=float)
    parser.add_argument('--wd', default=-5, type=float)
    parser.add_argument('--batch', default=10, type=int)
    parser.add_argument('--nmb_cluster', type=int, default=4)
    parser.add_argument('--exp', type=str, default='exp')
    args = parser.parse_args()
    torch.manual_seed(31)
    rng = np.random.RandomState(31)
    model = VGGish()
    fd = int(model.top_layer.weight.size()[1])
    model.top_layer = None
    optimizer = torch.optim.SGD(filter(lambda x: x.requires_grad, model.parameters()), lr=args.lr, momentum=0.9, weight_decay=10 ** args.wd)
    model.features = torch.nn.DataParallel(model.features)
    model.cuda()
    criterion = nn.CrossEntropyLoss().cuda()
    images = torch.randn(38, 1, 6, 6)
    log = []
    os.makedirs(os.path.join(args.exp, 'checkpoints'), exist_ok=True)
    for epoch in range(3):
        model.top_layer = None
        plain = DataLoader(Reassigned(images, np.zeros(38)), batch_size=args.batch)
        features = compute_features(plain, model, 38)
        clusters = kmeans(features.copy(), args.nmb_cluster, rng)
        train_dataloader = DataLoader(Reassigned(images, clusters), batch_size=args.batch, shuffle=True)
        model.top_layer = nn.Linear(fd, args.nmb_cluster)
        model.top_layer.weight.data.normal_(0, 0.01)
        model.top_layer.bias.data.zero_()
        model.top_layer.cuda()
        loss = train(train_dataloader, model, criterion, optimizer, epoch)
        print('###### Epoch [{0}] ###### Convnet loss: {1:.5f} sizes {2}'.format(epoch, loss, np.bincount(clusters).tolist()))
        torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()}, os.path.join(args.exp, 'checkpoint.pth.tar'))
        log.append(clusters.tolist())
        with open(os.path.join(args.exp, 'clusters'), 'wb') as fp:
            pickle.dump(log, fp)
