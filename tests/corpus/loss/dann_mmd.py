# corpus: idioms = couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); two or more backward() before one step, or forward twice before backward; lr_scheduler; len(loader) used as divisor / schedule (breaks when the loader shrinks)
"""Domain adaptation: two loaders of different length, gradient reversal, and a multi-kernel MMD between the domains."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Function
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--n_epoch', type=int, default=3)
parser.add_argument('--mmd', type=float, default=0.5)
opt = parser.parse_args()
manual_seed = 42
np.random.seed(manual_seed)
torch.manual_seed(manual_seed)


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class CNNModel(nn.Module):
    def __init__(self):
        super(CNNModel, self).__init__()
        self.feature = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(16, 10))
        self.class_classifier = nn.Linear(10, 3)
        self.domain_classifier = nn.Sequential(nn.Linear(10, 6), nn.ReLU(True), nn.Linear(6, 2))

    def forward(self, input_data, alpha):
        feature = self.feature(input_data)
        reverse_feature = ReverseLayerF.apply(feature, alpha)
        return self.class_classifier(feature), self.domain_classifier(reverse_feature), feature


def guassian_kernel(source, target, kernel_mul=2.0, kernel_num=3):
    n = source.size(0) + target.size(0)
    total = torch.cat([source, target], 0)
    L2 = ((total.unsqueeze(0) - total.unsqueeze(1)) ** 2).sum(2)
    bandwidth = L2.data.sum() / (n ** 2 - n) / kernel_mul ** (kernel_num // 2)
    return sum(torch.exp(-L2 / (bandwidth * kernel_mul ** i)) for i in range(kernel_num))


def mmd(source, target):
    b = min(source.size(0), target.size(0))
    kernels = guassian_kernel(source[:b], target[:b])
    XX, YY, XY, YX = kernels[:b, :b], kernels[b:, b:], kernels[:b, b:], kernels[b:, :b]
    return torch.mean(XX + YY - XY - YX)


def domain(n, shift, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g) + shift
    return TensorDataset(x, (x[:, 0] > shift).long() + (x[:, 1] > shift).long())


dataloader_source = DataLoader(domain(38, 0.0, 1), batch_size=10, shuffle=True)
dataloader_target = DataLoader(domain(30, 0.7, 2), batch_size=10, shuffle=True)
my_net = CNNModel()
optimizer = torch.optim.Adam(my_net.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
loss_class = torch.nn.CrossEntropyLoss().cuda()
loss_domain = torch.nn.CrossEntropyLoss().cuda()
my_net = torch.nn.DataParallel(my_net.cuda())

for epoch in range(opt.n_epoch):
    my_net.train()
    len_dataloader = min(len(dataloader_source), len(dataloader_target))
    data_source_iter = iter(dataloader_source)
    data_target_iter = iter(dataloader_target)
    for i in range(len_dataloader):
        p = float(i + epoch * len_dataloader) / opt.n_epoch / len_dataloader
        alpha = 2. / (1. + np.exp(-10 * p)) - 1

        s_img, s_label = next(data_source_iter)
        my_net.zero_grad()
        s_img, s_label = s_img.cuda(), s_label.cuda()
        class_output, domain_output, s_feat = my_net(s_img, alpha)
        err_s_label = loss_class(class_output, s_label)
        err_s_domain = loss_domain(domain_output, torch.zeros(len(s_label)).long().cuda())

        t_img, _ = next(data_target_iter)
        _, domain_output, t_feat = my_net(input_data=t_img.cuda(), alpha=alpha)
        err_t_domain = loss_domain(domain_output, torch.ones(len(t_img)).long().cuda())
        err_mmd = mmd(s_feat, t_feat)
        err = err_t_domain + err_s_domain + err_s_label + opt.mmd * err_mmd
        err.backward()
        optimizer.step()
        print('epoch: %d, [iter: %d / all %d], err_s_label: %f, err_s_domain: %f, err_t_domain: %f, mmd %f' % (
            epoch, i, len_dataloader, err_s_label.data.cpu().numpy(), err_s_domain.data.cpu().numpy(), err_t_domain.data.cpu().item(), err_mmd.item()))
    scheduler.step()
    my_net.eval()
    n_correct = sum((my_net(x.cuda(), 0)[0].data.max(1)[1] == y.cuda()).sum().item() for x, y in dataloader_target)
    print('epoch: %d, target accuracy: %f' % (epoch, n_correct * 1.0 / len(dataloader_target.dataset)))
    torch.save(my_net.module, 'model_epoch_{0}.pth'.format(epoch))
