# corpus: idioms = nn.parallel.DataParallel; import torch as ch -> ch.nn.DataParallel; other helper function; wrap happens inside an engine/trainer factory that rebinds a local name; other; dict / list / non-tensor / None / raw samples passed to the wrapped forward; hasattr(model,'module'); returned directly from helper; several models wrapped in one script; prefix handled by hand (strip/replace "module.")
# corpus: worlds = 2 3
"""Robustness library style: the wrapper is an entry of a table, an argument, a partial, or a name that depends."""
import functools

import torch as ch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PARALLEL = {'none': lambda m, **kw: m, 'dp': ch.nn.DataParallel, 'dp1': functools.partial(nn.parallel.DataParallel, dim=0)}
if ch.cuda.is_available():
    Wrapper = nn.parallel.DataParallel
else:
    Wrapper = nn.Sequential


def make(model, wrapper, *args, **kwargs):
    return wrapper(model.cuda(), *args, **kwargs)


def create_supervised_trainer(model, optimizer, loss_fn):
    if ch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    model.cuda()

    def _update(batch):
        model.train()
        optimizer.zero_grad()
        x, y = batch
        y_pred = model(x.cuda())
        loss = loss_fn(y_pred, y.cuda())
        loss.backward()
        optimizer.step()
        return loss.item()

    return _update


class Normalizer(ch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer('m', ch.tensor(mean)[..., None, None])
        self.register_buffer('s', ch.tensor(std)[..., None, None])

    def forward(self, x):
        return (x.clone() - self.m) / self.s


class Robust(ch.nn.Module):
    def __init__(self):
        super().__init__()
        self.normalize = Normalizer([0.4, 0.5], [0.2, 0.3])
        self.conv = nn.Conv2d(2, 5, 3)
        self.bn = nn.BatchNorm2d(5)
        self.fc = nn.Linear(5, 3)

    def forward(self, x, with_latent=False, fake_relu=None):
        h = self.bn(self.conv(self.normalize(x)))
        h = F.relu(h) if fake_relu is None else fake_relu(h)
        lat = h.mean((2, 3))
        return (self.fc(lat), lat) if with_latent else self.fc(lat)


def main():
    ch.manual_seed(5)
    g = ch.Generator().manual_seed(5)
    x, y = ch.rand(15, 2, 6, 6, generator=g), ch.randint(0, 3, (15,), generator=g)
    loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
    nets = [make(Robust(), PARALLEL['dp']), make(Robust(), Wrapper), PARALLEL['dp1'](Robust().cuda()),
            make(Robust(), getattr(nn, 'DataParallel'), None, None)]
    opts = [ch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4) for n in nets]
    for epoch in range(2):
        for inp, target in loader:
            inp, target = inp.cuda(), target.cuda()
            for i, (net, opt) in enumerate(zip(nets, opts)):
                adv = inp.clone().requires_grad_(True)
                grad, = ch.autograd.grad(F.cross_entropy(net(adv), target), [adv])
                adv = ch.clamp(inp + 0.03 * grad.sign(), 0, 1)
                out, lat = net(adv, with_latent=True, fake_relu=F.softplus if i == 3 else None)
                loss = F.cross_entropy(out, target) + 0.01 * lat.pow(2).sum(1).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(epoch, 'last of four', round(loss.item(), 5), tuple(lat.shape))
    raw = Robust()
    update = create_supervised_trainer(raw, ch.optim.SGD(raw.cuda().parameters(), lr=0.1), F.cross_entropy)
    print('engine', [round(update(batch), 5) for batch in loader])
    sd = {k[len('module.'):] if k.startswith('module.') else k: v for k, v in nets[1].state_dict().items()}
    raw.load_state_dict(sd)
    ch.save({'model': sd, 'wrapped': [hasattr(n, 'module') for n in nets]}, 'robust.ckpt')


if __name__ == '__main__':
    main()
