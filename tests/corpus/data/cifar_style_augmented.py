# corpus: idioms = is CUDA available / use_cuda flag only; shuffle literal True; len(loader.dataset); DataLoader built in: same file, other scope (relative to the wrap); cudnn flags; torch.manual_seed; best selection; correct/total counters; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; np.random/random seed
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchDDP
"""The usual CIFAR script with flips and a cutout: the crops of rows on different ranks must not repeat."""
import argparse
import os
import random

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description='PyTorch training')
parser.add_argument('--lr', default=0.05, type=float)
parser.add_argument('--bs', default=14, type=int)
args = parser.parse_args()
device = 'cuda' if torch.cuda.is_available() else 'cpu'
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
best_acc = 0


def to_chw(image):
    if random.random() < 0.5:
        image = image[:, ::-1]
    image = image.copy()
    top = np.random.randint(4)
    image[top:top + 2, top:top + 2] = 0
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


class Augmented(Dataset):
    classes = ('plane', 'car', 'bird')

    def __init__(self, root, train=True, transform=None, download=False):
        self.root, self.train = root, train
        self.transform = transform
        path = os.path.join(root, 'train.npz' if train else 'test.npz')
        if download and not os.path.exists(path):
            os.makedirs(root, exist_ok=True)
            rng = np.random.RandomState(int(train))
            y = rng.randint(0, 3, size=75 if train else 31)
            x = rng.randint(0, 200, size=(len(y), 6, 6, 3)) + 18 * y[:, None, None, None]
            np.savez(path, x=x.astype('uint8'), y=y)
        found = np.load(path)
        self.data, self.targets = found['x'], found['y']

    def __len__(self):
        return len(self.targets)

    def load(self, index):
        return self.data[index], int(self.targets[index])

    def __getitem__(self, index):
        img, target = self.load(index)
        if self.transform is not None:
            img = self.transform(img)
        return img, target


def get_loaders(root='./data'):
    trainset = Augmented(root, train=True, transform=to_chw, download=True)
    testset = Augmented(root, train=False, transform=to_chw, download=True)
    trainloader = DataLoader(trainset, batch_size=args.bs, shuffle=True, num_workers=0)
    testloader = DataLoader(testset, batch_size=12, shuffle=False)
    return trainloader, testloader


trainloader, testloader = get_loaders()
net = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(192, 3))
net = net.to(device)
if device == 'cuda':
    net = torch.nn.DataParallel(net)
    cudnn.benchmark = True
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)


def train(epoch):
    print('\nEpoch: %d of %d images' % (epoch, len(trainloader.dataset)))
    net.train()
    train_loss = correct = total = 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device).float() / 255, targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print('Loss: %.5f | Acc: %.3f%% (%d/%d)' % (train_loss / (batch_idx + 1), 100. * correct / total, correct, total))


def test(epoch):
    global best_acc
    net.eval()
    test_loss = correct = total = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device) / 255., targets.to(device)
            outputs = net(inputs)
            test_loss += criterion(outputs, targets).item()
            total += targets.size(0)
            correct += outputs.max(1)[1].eq(targets).sum().item()
    acc = 100. * correct / total
    print('Test loss %.5f acc %.3f' % (test_loss / len(testloader), acc))
    if acc > best_acc:
        torch.save({'net': net.state_dict(), 'acc': acc, 'epoch': epoch}, './ckpt.pth')
        best_acc = acc


for epoch in range(3):
    train(epoch)
    test(epoch)
