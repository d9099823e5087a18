# corpus: idioms = from models.py_utils.data_parallel import DataParallel; own/vendored class UserScatteredDataParallel; own/vendored class; hand-written replicate/scatter/parallel_apply/gather; chunk_sizes (unequal split); self.attr = DP(...); class method (__init__); own data_parallel function; device_ids literal/comprehension list; computed inside the wrapped forward, gathered, then .mean(); parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); output_device=
# corpus: worlds = 2 3
"""Corner detection with a DataParallel class of one's own, made of torch's four functions (as CornerNet ships it)."""
import numpy as np
import torch
import torch.nn as nn
from torch.nn.modules import Module
from torch.nn.parallel.parallel_apply import parallel_apply
from torch.nn.parallel.replicate import replicate
from torch.nn.parallel.scatter_gather import gather, scatter_kwargs


class DataParallel(Module):
    def __init__(self, module, device_ids=None, output_device=None, dim=0, chunk_sizes=None):
        super(DataParallel, self).__init__()
        if not torch.cuda.is_available():
            self.module = module
            self.device_ids = []
            return
        if device_ids is None:
            device_ids = list(range(torch.cuda.device_count()))
        if output_device is None:
            output_device = device_ids[0]
        self.dim = dim
        self.module = module
        self.device_ids = device_ids
        self.chunk_sizes = chunk_sizes
        self.output_device = output_device
        if len(self.device_ids) == 1:
            self.module.cuda(device_ids[0])

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids, self.chunk_sizes)
        if len(self.device_ids) == 1:
            return self.module(*inputs[0], **kwargs[0])
        replicas = self.replicate(self.module, self.device_ids[:len(inputs)])
        outputs = self.parallel_apply(replicas, inputs, kwargs)
        return self.gather(outputs, self.output_device)

    def replicate(self, module, device_ids):
        return replicate(module, device_ids)

    def scatter(self, inputs, kwargs, device_ids, chunk_sizes):
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[:len(replicas)])

    def gather(self, outputs, output_device):
        return gather(outputs, output_device, dim=self.dim)


class Pool(nn.Module):
    def __init__(self, dim):
        super(Pool, self).__init__()
        self.p1 = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1), nn.BatchNorm2d(dim), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.p1(x).flip(3).cummax(3)[0].flip(3) + x


class Net(nn.Module):
    def __init__(self, dim=5):
        super(Net, self).__init__()
        self.pre = nn.Conv2d(1, dim, 3, 2, 1)
        self.tl, self.br = Pool(dim), Pool(dim)
        self.heat = nn.Conv2d(dim, 1, 1)
        self.tag = nn.Conv2d(dim, 1, 1)
        self.register_buffer('count', torch.zeros(1, dtype=torch.long))

    def forward(self, *xs, **kwargs):
        image, mask = xs[0], xs[1]
        self.count += image.size(0)
        x = self.pre(image)
        outs = []
        for pool in (self.tl, self.br):
            y = pool(x)
            outs += [self.heat(y), self.tag(y.detach() if not self.training else y) * mask]
        return outs


class Loss(nn.Module):
    def forward(self, outs, targets):
        tl, tl_tag, br, br_tag = outs
        focal = 0
        for heat, gt in zip((tl, br), targets):
            heat = torch.clamp(heat.sigmoid(), min=1e-4, max=1 - 1e-4)
            pos = gt.eq(1)
            n = pos.float().sum()
            p = torch.log(heat[pos]) * torch.pow(1 - heat[pos], 2)
            q = torch.log(1 - heat[~pos]) * torch.pow(heat[~pos], 2)
            focal = focal - (q.sum() if n == 0 else (p.sum() + q.sum()) / n)
        pull = (tl_tag - br_tag).pow(2).mean()
        return (focal + 0.1 * pull).unsqueeze(0)


class Network(nn.Module):
    def __init__(self, model, loss):
        super(Network, self).__init__()
        self.model = model
        self.loss = loss

    def forward(self, xs, ys, **kwargs):
        preds = self.model(*xs, **kwargs)
        return self.loss(preds, ys, **kwargs)


class NetworkFactory(object):
    def __init__(self, lr, chunk_sizes):
        self.model = Net()
        self.network = DataParallel(Network(self.model, Loss()), chunk_sizes=chunk_sizes).cuda()
        print("total parameters: {}".format(sum(int(np.prod(p.size())) for p in self.model.parameters())))
        self.optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, self.model.parameters()), lr=lr)

    def train(self, xs, ys, **kwargs):
        xs = [x.cuda(non_blocking=True) for x in xs]
        ys = [y.cuda(non_blocking=True) for y in ys]
        self.optimizer.zero_grad()
        loss = self.network(xs, ys)
        loss = loss.mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def validate(self, xs, ys):
        with torch.no_grad():
            return self.network(xs, ys).mean()

    def save_params(self, iteration):
        with open('CornerNet_%d.pkl' % iteration, 'wb') as f:
            torch.save(self.model.state_dict(), f)


def sample(rng, n):
    img = torch.from_numpy(rng.randn(n, 1, 8, 8).astype(np.float32))
    mask = torch.from_numpy((rng.rand(n, 1, 4, 4) > 0.3).astype(np.float32))
    gts = [torch.from_numpy((rng.rand(n, 1, 4, 4) > 0.9).astype(np.float32)) for _ in range(2)]
    return [img, mask], gts


if __name__ == '__main__':
    np.random.seed(123)
    torch.manual_seed(317)
    rng = np.random.RandomState(0)
    nnet = NetworkFactory(2.5e-2, chunk_sizes=[4, 5])
    for iteration in range(1, 11):
        nnet.network.train()
        xs, ys = sample(rng, 9 if iteration % 4 else 5)
        loss = nnet.train(xs, ys)
        if iteration % 5 == 0:
            nnet.network.eval()
            print('iter %d train %.5f val %.5f seen %d' % (
                iteration, loss.item(), nnet.validate(*sample(rng, 4)).item(), nnet.model.count.item()))
            nnet.save_params(iteration)
