# corpus: idioms = torch.nn.DataParallel; DP(...).cuda(); global statement; from x import *; manual adjust_learning_rate; best selection; torch.load; text/csv/json log file; AverageMeter
# corpus: idioms = DataLoader built in: other file (relative to the wrap); train loop / backward in: same file, other scope (relative to the wrap); correct/total counters; CUDA_VISIBLE_DEVICES set in the script
# corpus: arguments = --arch resmlp --epochs 2
# corpus: helpers = WholeBatchDDP
"""The architecture by its name in models.__dict__, utils with stars, a best accuracy that is global."""
from __future__ import print_function

import argparse
import os
import random

import torch
import torch.nn as nn
import torch.optim as optim

import models
from datasets_local import get_loaders
from utils import *

model_names = sorted(name for name in models.__dict__ if name.islower() and not name.startswith('__') and callable(models.__dict__[name]))

parser = argparse.ArgumentParser(description='Training')
parser.add_argument('-a', '--arch', default='resmlp', choices=model_names)
parser.add_argument('--epochs', default=3, type=int)
parser.add_argument('--lr', default=0.05, type=float)
parser.add_argument('--schedule', type=int, nargs='+', default=[1, 2])
parser.add_argument('--gamma', type=float, default=0.1)
parser.add_argument('-c', '--checkpoint', default='checkpoint', type=str)
parser.add_argument('--resume', default='', type=str)
parser.add_argument('--manualSeed', type=int, default=7)
parser.add_argument('--gpu-id', default='0,1', type=str)
args = parser.parse_args()
state = {k: v for k, v in args._get_kwargs()}

os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu_id
use_cuda = torch.cuda.is_available()
random.seed(args.manualSeed)
torch.manual_seed(args.manualSeed)
if use_cuda:
    torch.cuda.manual_seed_all(args.manualSeed)

best_acc = 0


def main():
    global best_acc
    if not os.path.isdir(args.checkpoint):
        mkdir_p(args.checkpoint)
    trainloader, testloader = get_loaders(10)
    print("==> creating model '{}'".format(args.arch))
    model = models.__dict__[args.arch](num_classes=3)
    model = torch.nn.DataParallel(model).cuda()
    print('    Total params: %d' % sum(p.numel() for p in model.parameters()))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    logger = Logger(os.path.join(args.checkpoint, 'log.txt'))
    if args.resume:
        checkpoint = torch.load(args.resume)
        best_acc = checkpoint['best_acc']
        model.load_state_dict(checkpoint['state_dict'])
    logger.set_names(['LR', 'Train Loss', 'Valid Acc.'])
    for epoch in range(args.epochs):
        adjust_learning_rate(optimizer, epoch)
        train_loss = train(trainloader, model, criterion, optimizer)
        test_acc = test(testloader, model)
        logger.append([state['lr'], train_loss, test_acc])
        best_acc = max(test_acc, best_acc)
        save_checkpoint({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'best_acc': best_acc}, test_acc >= best_acc, args.checkpoint)
    logger.close()
    print('Best acc:', best_acc)


def train(trainloader, model, criterion, optimizer):
    model.train()
    losses, top1 = AverageMeter(), AverageMeter()
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        if use_cuda:
            inputs, targets = inputs.cuda(), targets.cuda()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        prec1 = accuracy(outputs.data, targets.data)
        losses.update(loss.item(), inputs.size(0))
        top1.update(prec1.item(), inputs.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print('({}) loss {:.4f} top1 {:.2f}'.format(batch_idx, losses.avg, top1.avg))
    return losses.avg


def test(testloader, model):
    model.eval()
    top1 = AverageMeter()
    with torch.no_grad():
        for inputs, targets in testloader:
            outputs = model(inputs.cuda())
            top1.update(accuracy(outputs, targets.cuda()).item(), inputs.size(0))
    return top1.avg


def adjust_learning_rate(optimizer, epoch):
    global state
    if epoch in args.schedule:
        state['lr'] *= args.gamma
        for param_group in optimizer.param_groups:
            param_group['lr'] = state['lr']


if __name__ == '__main__':
    main()
