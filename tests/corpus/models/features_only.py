# corpus: idioms = torch.nn.DataParallel; function main/train/run; submodule obj.attr = DP(obj.attr); submodule only (model.features / model.encoder), head outside; architecture name (alexnet/vgg -> wrap .features only); same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap); DP(...).cuda(); none; .cuda(arg); optimizer created after wrap; model.module access; manual adjust_learning_rate; AverageMeter; global statement; tensors left on the CPU, DP.scatter does the copy
# corpus: worlds = 2 3
"""The ImageNet example of 2017: of alexnet and vgg only the features are wrapped."""
import argparse
import os
import shutil
import torch
import torch.nn as nn
import torch.optim
import torch.utils.data

parser = argparse.ArgumentParser(description='PyTorch ImageNet Training')
parser.add_argument('-a', '--arch', default='vgg5')
parser.add_argument('--epochs', default=3, type=int)
parser.add_argument('-b', '--batch-size', default=10, type=int)
parser.add_argument('--lr', default=0.05, type=float)
parser.add_argument('--seed', default=1, type=int)
parser.add_argument('--gpu', default=None, type=int)
parser.add_argument('--print-freq', '-p', default=2, type=int)
best_prec1 = 0


class VGG(nn.Module):
    def __init__(self):
        super(VGG, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(32, 16), nn.ReLU(True), nn.Linear(16, 5))

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), -1)
        return self.classifier(x)


def vgg5(**kw):
    return VGG()


models = {'vgg5': vgg5, 'alexnet': vgg5, 'resnet': vgg5}


def main():
    global args, best_prec1
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    print("=> creating model '{}'".format(args.arch))
    model = models[args.arch]()
    if args.gpu is not None:
        model = model.cuda(args.gpu)
    elif args.arch.startswith('alexnet') or args.arch.startswith('vgg'):
        model.features = torch.nn.DataParallel(model.features)
        model.cuda()
    else:
        model = torch.nn.DataParallel(model).cuda()

    criterion = nn.CrossEntropyLoss().cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(46, 3, 8, 8, generator=g), torch.randint(0, 5, (46,), generator=g)
    train_loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(X[:34], Y[:34]), batch_size=args.batch_size, shuffle=True, pin_memory=True)
    val_loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(X[34:], Y[34:]), batch_size=args.batch_size, shuffle=False)

    for epoch in range(args.epochs):
        adjust_learning_rate(optimizer, epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        prec1 = validate(val_loader, model, criterion)
        is_best = prec1 > best_prec1
        best_prec1 = max(prec1, best_prec1)
        save_checkpoint({'epoch': epoch + 1, 'arch': args.arch, 'state_dict': model.state_dict(),
                         'best_prec1': best_prec1, 'optimizer': optimizer.state_dict()}, is_best)


def train(train_loader, model, criterion, optimizer, epoch):
    losses = AverageMeter()
    top1 = AverageMeter()
    model.train()
    for i, (input, target) in enumerate(train_loader):
        target = target.cuda(args.gpu, non_blocking=True)
        output = model(input)
        loss = criterion(output, target)
        prec1 = accuracy(output, target)
        losses.update(loss.item(), input.size(0))
        top1.update(prec1, input.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print('Epoch: [{0}][{1}/{2}]\tLoss {l.val:.4f} ({l.avg:.4f})\tPrec@1 {t.val:.3f}'.format(
                epoch, i, len(train_loader), l=losses, t=top1))


def validate(val_loader, model, criterion):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for i, (input, target) in enumerate(val_loader):
            target = target.cuda(args.gpu)
            output = model(input)
            top1.update(accuracy(output, target), input.size(0))
    print(' * Prec@1 {top1.avg:.3f}'.format(top1=top1))
    return top1.avg


def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, 'model_best.pth.tar')


class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def adjust_learning_rate(optimizer, epoch):
    lr = args.lr * (0.1 ** (epoch // 2))
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean().item() * 100


if __name__ == '__main__':
    main()
