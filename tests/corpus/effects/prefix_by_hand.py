# corpus: idioms = nn.DataParallel; function main/train/run; rebinds the same name; new name, raw model kept under another name; prefix handled by hand (strip/replace "module."); hasattr(model,'module'); try: net.module ... except: net; torch.load; torch.save; device_count() > 1
# corpus: idioms = same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap); best selection; p.data edits outside optimizer; BN frozen or momentum scheduled in the loop; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches)
# corpus: worlds = 2 3 4
"""Fine-tuning from a checkpoint with or without "module."; the state is moved between both forms by hand."""
from collections import OrderedDict

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU())
        self.head = nn.Linear(10, 3)
        self.aux = nn.Linear(10, 2)

    def forward(self, x):
        return self.head(self.stem(x))


def strip(state):
    new = OrderedDict()
    for k, v in state.items():
        new[k[7:] if k.startswith('module.') else k] = v
    return new


def add(state):
    return OrderedDict(('module.' + k, v) for k, v in state.items())


def partial_load(model, path):
    pretrained = torch.load(path)['state_dict']
    own = model.state_dict()
    fits = {k: v for k, v in pretrained.items() if k in own and own[k].size() == v.size()}
    print('loaded %d of %d' % (len(fits), len(own)))
    own.update(fits)
    model.load_state_dict(own)


def set_bn_eval(m):
    if m.__class__.__name__.find('BatchNorm') != -1:
        m.eval()


def epoch_of(model, loader, optimizer, frozen):
    model.train()
    if frozen:
        model.apply(set_bn_eval)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(17)
    x = torch.randn(42, 6)
    y = x[:, :3].argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=9, shuffle=True)
    model = Backbone().cuda()
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    print('first %.5f' % epoch_of(model, loader, optimizer, False))
    torch.save({'state_dict': model.state_dict()}, 'first.pth')
    torch.save({'state_dict': strip(model.state_dict())}, 'plain.pth')

    fresh = Backbone().cuda()
    fresh.load_state_dict(strip(torch.load('first.pth')['state_dict']))
    for p in fresh.stem.parameters():
        p.requires_grad = False
    fresh.head.weight.data.mul_(0.5)
    net = nn.DataParallel(fresh)
    partial_load(net, 'plain.pth')
    net.load_state_dict(add(torch.load('plain.pth')['state_dict']))
    optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), 0.05)
    for epoch in range(2):
        print('tuned %.5f' % epoch_of(net, loader, optimizer, True))
    try:
        state = net.module.state_dict()
    except AttributeError:
        state = net.state_dict()
    raw = net.module if hasattr(net, 'module') else net
    assert list(state) == list(raw.state_dict())
    torch.save(OrderedDict((k, v.cpu()) for k, v in state.items()), 'tuned.pth')
    print(list(torch.load('first.pth')['state_dict'])[0], list(torch.load('tuned.pth'))[0], len(state))


if __name__ == '__main__':
    main()
