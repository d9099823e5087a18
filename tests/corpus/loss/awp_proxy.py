# corpus: idioms = grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA); own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); attack loop calls loss.backward() through the wrapped training model; several models wrapped in one script; p.data edits outside optimizer
# corpus: worlds = 2 3
"""Adversarial weight perturbation: a proxy copy takes one step uphill, the model's weights follow by state_dict name."""
import argparse
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EPS = 1E-20


def diff_in_weights(model, proxy):
    diff_dict = OrderedDict()
    model_state_dict = model.state_dict()
    proxy_state_dict = proxy.state_dict()
    for (old_k, old_w), (new_k, new_w) in zip(model_state_dict.items(), proxy_state_dict.items()):
        if len(old_w.size()) <= 1:
            continue
        if 'weight' in old_k:
            diff_w = new_w - old_w
            diff_dict[old_k] = old_w.norm() / (diff_w.norm() + EPS) * diff_w
    return diff_dict


def add_into_weights(model, diff, coeff=1.0):
    names_in_diff = diff.keys()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name in names_in_diff:
                param.add_(coeff * diff[name])


class AdvWeightPerturb(object):
    def __init__(self, model, proxy, proxy_optim, gamma):
        super(AdvWeightPerturb, self).__init__()
        self.model = model
        self.proxy = proxy
        self.proxy_optim = proxy_optim
        self.gamma = gamma

    def calc_awp(self, inputs_adv, targets):
        self.proxy.load_state_dict(self.model.state_dict())
        self.proxy.train()
        loss = - F.cross_entropy(self.proxy(inputs_adv), targets)
        self.proxy_optim.zero_grad()
        loss.backward()
        self.proxy_optim.step()
        return diff_in_weights(self.model, self.proxy)

    def perturb(self, diff):
        add_into_weights(self.model, diff, coeff=1.0 * self.gamma)

    def restore(self, diff):
        add_into_weights(self.model, diff, coeff=-1.0 * self.gamma)


class PreActNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        out = self.conv1(x)
        out = out + self.conv2(F.relu(self.bn1(out)))
        return self.linear(F.adaptive_avg_pool2d(F.relu(out), 1).flatten(1))


def attack_pgd(model, X, y, epsilon, alpha, attack_iters):
    delta = torch.zeros_like(X).cuda()
    delta.uniform_(-epsilon, epsilon)
    delta.requires_grad = True
    for _ in range(attack_iters):
        output = model(X + delta)
        index = torch.where(output.max(1)[1] == y)[0]
        if len(index) == 0:
            break
        loss = F.cross_entropy(output, y)
        loss.backward()
        grad = delta.grad.detach()
        d = torch.clamp(delta[index] + alpha * torch.sign(grad[index]), min=-epsilon, max=epsilon)
        delta.data[index] = d
        delta.grad.zero_()
    return delta.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', default=2, type=int)
    parser.add_argument('--attack-iters', default=2, type=int)
    parser.add_argument('--awp-gamma', default=0.05, type=float)
    parser.add_argument('--awp-warmup', default=1, type=int)
    parser.add_argument('--lr-max', default=0.05, type=float)
    args = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    torch.cuda.manual_seed(0)
    x = torch.rand(28, 2, 5, 5)
    y = torch.randint(0, 3, (28,))
    x[torch.arange(28), 0, y, y] += 1
    train_batches = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
    model = nn.DataParallel(PreActNet()).cuda()
    proxy = nn.DataParallel(PreActNet()).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr_max, momentum=0.9, weight_decay=5e-4)
    proxy_opt = torch.optim.SGD(proxy.parameters(), lr=0.01)
    awp_adversary = AdvWeightPerturb(model=model, proxy=proxy, proxy_optim=proxy_opt, gamma=args.awp_gamma)

    for epoch in range(args.epochs):
        model.train()
        train_robust_loss, train_robust_acc, train_n = 0, 0, 0
        for i, (X, y) in enumerate(train_batches):
            X, y = X.cuda(), y.cuda()
            opt.param_groups[0].update(lr=args.lr_max * (1 - 0.1 * (epoch + (i + 1) / len(train_batches))))
            model.eval()
            delta = attack_pgd(model, X, y, 0.1, 0.05, args.attack_iters)
            model.train()
            X_adv = torch.clamp(X + delta, 0, 2)
            if epoch >= args.awp_warmup:
                awp = awp_adversary.calc_awp(inputs_adv=X_adv, targets=y)
                awp_adversary.perturb(awp)
            robust_output = model(X_adv)
            robust_loss = F.cross_entropy(robust_output, y)
            opt.zero_grad()
            robust_loss.backward()
            opt.step()
            if epoch >= args.awp_warmup:
                awp_adversary.restore(awp)
            train_robust_loss += robust_loss.item() * y.size(0)
            train_robust_acc += (robust_output.max(1)[1] == y).sum().item()
            train_n += y.size(0)
            print(epoch, i, '%.5f' % robust_loss.item(), '%.5f' % delta.abs().mean().item())
        print('%d \t %.4f \t %.4f' % (epoch, train_robust_loss / train_n, train_robust_acc / train_n))
        torch.save(model.state_dict(), 'model_%d.pth' % epoch)
    torch.save(opt.state_dict(), 'opt.pth')


if __name__ == "__main__":
    main()
