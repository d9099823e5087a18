# corpus: idioms = torch.nn.DataParallel; module level, bare; rebinds the same name; is CUDA available / use_cuda flag only; len(loader) used as divisor / schedule (breaks when the loader shrinks); lr_scheduler; manual adjust_learning_rate
# corpus: idioms = drop_last; shuffle literal True; tensorboard; cudnn flags; .item(); correct/total counters; .cuda(arg); non_blocking; worker_init_fn; gradient accumulation
# corpus: worlds = 2 3 4
'''Fine-grained birds. Warm-up and cosine are counted in iterations = epochs * len(train_loader).'''
import math
import os
import torch
import torch.nn as nn
import torch.backends.cudnn as cudnn
from torch.utils.data import Dataset, DataLoader
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(42)
cudnn.benchmark = True
EPOCHS, WARMUP, BASE_LR, ACCUM = 3, 1, 0.08, 2
use_cuda = torch.cuda.is_available()


class Birds(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 3, 6, 6, generator=gen)
        self.y = (self.x[:, 0].sum((1, 2)) > 0).long() + (self.x[:, 1].sum((1, 2)) > 0).long()

    def __getitem__(self, i):
        x = self.x[i]
        return (x.flip(-1) if i % 3 == 0 else x), self.y[i]

    def __len__(self):
        return self.x.shape[0]


def worker_init(worker):
    torch.manual_seed(worker)


train_loader = DataLoader(Birds(62, 1), batch_size=8, shuffle=True, drop_last=False, num_workers=0, worker_init_fn=worker_init, pin_memory=True)
test_loader = DataLoader(Birds(21, 2), batch_size=8)
net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
criterion = nn.CrossEntropyLoss()
if use_cuda:
    net.cuda()
    net = torch.nn.DataParallel(net, device_ids=range(torch.cuda.device_count()))
    criterion.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=BASE_LR, momentum=0.9, nesterov=True, weight_decay=1e-4)
writer = SummaryWriter(os.path.join('runs', 'birds'))


def set_lr(it):
    total, warm = EPOCHS * len(train_loader), WARMUP * len(train_loader)
    if it < warm:
        lr = BASE_LR * (it + 1) / warm
    else:
        lr = BASE_LR * 0.5 * (1 + math.cos(math.pi * (it - warm) / (total - warm)))
    for g in optimizer.param_groups:
        g['lr'] = lr
    return lr


def test(epoch):
    net.eval()
    correct = total = 0
    test_loss = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.cuda(non_blocking=True), target.cuda(non_blocking=True)
            output = net(data)
            test_loss += criterion(output, target).item()
            correct += output.max(1)[1].eq(target).sum().item()
            total += target.size(0)
    writer.add_scalar('test/acc', correct / total, epoch)
    print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n'.format(
        test_loss / len(test_loader), correct, total, 100. * correct / total))


for epoch in range(EPOCHS):
    net.train()
    running = 0.0
    optimizer.zero_grad()
    for i, (data, target) in enumerate(train_loader):
        it = epoch * len(train_loader) + i
        lr = set_lr(it)
        data, target = data.cuda(non_blocking=True), target.cuda(non_blocking=True)
        loss = criterion(net(data), target) / ACCUM
        loss.backward()
        if (i + 1) % ACCUM == 0 or i + 1 == len(train_loader):
            optimizer.step()
            optimizer.zero_grad()
        running += loss.item() * ACCUM
        if i % 4 == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}\tlr: {:.5f}'.format(
                epoch, i * len(data), len(train_loader.dataset), 100. * i / len(train_loader), loss.item() * ACCUM, lr))
        writer.add_scalar('train/loss', loss.item(), it)
    print('epoch %d mean loss %.5f' % (epoch, running / len(train_loader)))
    test(epoch)
writer.close()
