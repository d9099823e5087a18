# corpus: idioms = cuda(async=); torch.nn.DataParallel; .cuda(arg); Variable(); volatile=; rebinds the same name; function main/train/run; AverageMeter
# corpus: worlds = 2 3
"""Of 2017 but for its prints: the original runs as soon as `async` is called what torch calls it now."""
import torch
import torch.nn as nn
from torch.autograd import Variable


class AverageMeter(object):
    def __init__(self):
        self.sum = self.count = 0.

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = nn.functional.relu(self.bn(self.conv(x)))
        x = nn.functional.avg_pool2d(x, x.size(-1))
        return self.fc(nn.functional.dropout(x.view(x.size(0), -1), 0.2, self.training))


def accuracy(output, target):
    _, pred = output.topk(1, 1, True, True)
    return pred.t().eq(target.view(1, -1)).float().sum() * (100.0 / target.size(0))


def main(gpu=None):
    torch.manual_seed(11)
    torch.cuda.manual_seed_all(11)
    model = torch.nn.DataParallel(Net()).cuda()
    criterion = nn.CrossEntropyLoss(size_average=True).cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data, labels = torch.randn(46, 3, 7, 7), torch.LongTensor(46).random_(4)
    losses, top1 = AverageMeter(), AverageMeter()
    for epoch in range(2):
        model.train()
        for input, target in zip(data.split(10), labels.split(10)):
            target = target.cuda(async=True)
            input_var = Variable(input.cuda(gpu, async=True))
            target_var = Variable(target)
            output = model(input_var)
            loss = criterion(output, target_var)
            losses.update(float(loss.data), input.size(0))
            top1.update(float(accuracy(output.data, target)), input.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print('epoch %d loss %.4f prec@1 %.2f' % (epoch, losses.avg, top1.avg))
    model.eval()
    output = model(Variable(data[:7].cuda(async = True), volatile=True))
    print('test %.4f' % float(output.data.sum()))


if __name__ == '__main__':
    main()
