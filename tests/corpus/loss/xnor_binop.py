# corpus: idioms = grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); p.data edits outside optimizer; Variable(); manual adjust_learning_rate; loss.data[0]
# corpus: worlds = 2 4
# corpus: helpers = WholeBatchParallel
"""XNOR net: weights are saved, binarised for forward and backward, restored, and the gradients rescaled by hand."""
from __future__ import print_function

import argparse
import os
import sys

import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset


class BinActive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.sign()

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input.ge(1)] = 0
        grad_input[input.le(-1)] = 0
        return grad_input


class BinConv2d(nn.Module):
    def __init__(self, i, o, k):
        super(BinConv2d, self).__init__()
        self.bn = nn.BatchNorm2d(i, eps=1e-4, momentum=0.1, affine=True)
        self.conv = nn.Conv2d(i, o, k, padding=k // 2)

    def forward(self, x):
        return torch.relu(self.conv(BinActive.apply(self.bn(x))))


class NIN(nn.Module):
    def __init__(self):
        super(NIN, self).__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.bin1 = BinConv2d(6, 8, 3)
        self.bin2 = BinConv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        x = self.last(self.bin2(self.bin1(self.first(x))))
        return x.mean((2, 3))


class BinOp():
    def __init__(self, model):
        convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        self.saved_params, self.target_modules = [], []
        for m in convs[1:-1]:
            self.saved_params.append(m.weight.data.clone())
            self.target_modules.append(m.weight)

    def binarization(self):
        for index, w in enumerate(self.target_modules):
            s = w.data.size()
            w.data = (w.data - w.data.mean(1, keepdim=True).expand(s)).clamp(-1.0, 1.0)
            self.saved_params[index].copy_(w.data)
            m = w.data.abs().sum((1, 2, 3), keepdim=True) / w.data[0].nelement()
            w.data = w.data.sign() * m.expand(s)

    def restore(self):
        for index, w in enumerate(self.target_modules):
            w.data.copy_(self.saved_params[index])

    def updateBinaryGradWeight(self):
        for w in self.target_modules:
            weight = w.data
            n = weight[0].nelement()
            s = weight.size()
            m = weight.abs().sum((1, 2, 3), keepdim=True).div(n).expand(s).clone()
            m[weight.lt(-1.0)] = 0
            m[weight.gt(1.0)] = 0
            m = m.mul(w.grad.data)
            m_add = weight.sign().mul(w.grad.data).sum((1, 2, 3), keepdim=True).div(n).expand(s).mul(weight.sign())
            w.grad.data = m.add(m_add).mul(1.0 - 1.0 / s[1]).mul(n)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--lr', default=0.01)
    parser.add_argument('--epochs', default=3, type=int)
    args = parser.parse_args()
    print('==> Options:', args)
    torch.manual_seed(1)
    torch.cuda.manual_seed(1)
    x = torch.randn(44, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long() + (x[:, 0, 2, 2] > 0).long()
    trainset, testset = TensorDataset(x[:28], y[:28]), TensorDataset(x[28:], y[28:])
    trainloader = DataLoader(trainset, batch_size=12, shuffle=True, num_workers=0)
    testloader = DataLoader(testset, batch_size=8, shuffle=False, num_workers=0)
    model = NIN()
    best_acc = 0
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            m.weight.data.normal_(0, 0.3)
            m.bias.data.zero_()
    bin_op = BinOp(model)
    model.cuda()
    model = torch.nn.DataParallel(model, device_ids=range(torch.cuda.device_count()))
    params = [{'params': [value], 'lr': args.lr, 'weight_decay': 0.00001} for key, value in dict(model.named_parameters()).items()]
    optimizer = optim.Adam(params, lr=0.10, weight_decay=0.00001)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(1, args.epochs + 1):
        if epoch % 2 == 0:
            for param_group in optimizer.param_groups:
                param_group['lr'] = param_group['lr'] * 0.1
        model.train()
        for batch_idx, (data, target) in enumerate(trainloader):
            bin_op.binarization()
            data, target = Variable(data.cuda()), Variable(target.cuda())
            optimizer.zero_grad()
            output = model(data)
            loss = criterion(output, target)
            loss.backward()
            bin_op.restore()
            bin_op.updateBinaryGradWeight()
            optimizer.step()
            if batch_idx % 2 == 0:
                value = loss.data[0] if loss.dim() else loss.data.item()
                print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}\tLR: {}'.format(
                    epoch, batch_idx * len(data), len(trainloader.dataset), 100. * batch_idx / len(trainloader), value, optimizer.param_groups[0]['lr']))
                sys.stdout.flush()
        model.eval()
        correct = 0
        bin_op.binarization()
        with torch.no_grad():
            for data, target in testloader:
                output = model(data.cuda())
                correct += output.data.max(1, keepdim=True)[1].eq(target.cuda().data.view(-1, 1)).cpu().sum().item()
        bin_op.restore()
        acc = 100. * float(correct) / len(testloader.dataset)
        if acc > best_acc:
            best_acc = acc
            torch.save({'best_acc': best_acc, 'state_dict': dict((k.replace('module.', ''), v) for k, v in model.state_dict().items())}, 'nin.pth.tar')
        print('Test accuracy {:.2f}%, best {:.2f}%'.format(acc, best_acc))
    print(os.path.exists('nin.pth.tar'))
