# corpus: idioms = own data_parallel function; hand-written replicate/scatter/parallel_apply/gather; function main/train/run; framework loop (ignite/torchnet Engine); device_ids=range(device_count()); own flag (args.multi_gpu / parallel / mGPUs ...); manual adjust_learning_rate; buffer or counter written in forward; text/csv/json log file
# corpus: worlds = 2 3
"""A functional wide resnet: no module at all, a dict of tensors, Broadcast and parallel_apply by hand."""
import argparse
import json
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.init import kaiming_normal_
from torch.nn.parallel import gather, parallel_apply, scatter
from torch.nn.parallel._functions import Broadcast
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description='Wide Residual Networks')
parser.add_argument('--width', default=1, type=float)
parser.add_argument('--batch_size', default=12, type=int)
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--epochs', default=3, type=int)
parser.add_argument('--weight_decay', default=0.0005, type=float)
parser.add_argument('--epoch_step', default='[2]', type=str)
parser.add_argument('--ngpu', default=torch.cuda.device_count(), type=int)


def cast(params, dtype='float'):
    if isinstance(params, dict):
        return {k: cast(v, dtype) for k, v in params.items()}
    return getattr(params.cuda(), dtype)()


def conv_params(ni, no, k=1):
    return kaiming_normal_(torch.Tensor(no, ni, k, k))


def linear_params(ni, no):
    return {'weight': kaiming_normal_(torch.Tensor(no, ni)), 'bias': torch.zeros(no)}


def bnparams(n):
    return {'weight': torch.rand(n), 'bias': torch.zeros(n), 'running_mean': torch.zeros(n), 'running_var': torch.ones(n)}


def data_parallel(f, input, params, mode, device_ids, output_device=None):
    device_ids = list(device_ids)
    if output_device is None:
        output_device = device_ids[0]
    if len(device_ids) == 1:
        return f(input, params, mode)
    params_all = Broadcast.apply(device_ids, *params.values())
    params_replicas = [{k: params_all[i + j * len(params)] for i, k in enumerate(params.keys())}
                       for j in range(len(device_ids))]
    replicas = [partial(f, params=p, mode=mode) for p in params_replicas]
    inputs = scatter([input], device_ids)
    replicas = replicas[:len(inputs)]
    outputs = parallel_apply(replicas, inputs)
    return gather(outputs, output_device)


def flatten(params):
    return {'.'.join(k): v for k, v in _flatten(params) if v is not None}


def _flatten(params, head=()):
    for k, v in params.items():
        if isinstance(v, dict):
            yield from _flatten(v, head + (k,))
        else:
            yield head + (k,), v


def batch_norm(x, params, base, mode):
    return F.batch_norm(x, weight=params[base + '.weight'], bias=params[base + '.bias'],
                        running_mean=params[base + '.running_mean'], running_var=params[base + '.running_var'],
                        training=mode)


def resnet(width, num_classes):
    w = int(6 * width)
    flat = flatten(cast({'conv0': conv_params(3, w, 3), 'block': {
        'bn0': bnparams(w), 'conv0': conv_params(w, w, 3), 'bn1': bnparams(w), 'conv1': conv_params(w, w, 3)},
        'bn': bnparams(w), 'fc': linear_params(w, num_classes)}))
    for k, v in flat.items():
        if 'running' not in k:
            v.requires_grad = True

    def f(input, params, mode):
        x = F.conv2d(input, params['conv0'], padding=1)
        o1 = F.relu(batch_norm(x, params, 'block.bn0', mode), inplace=True)
        y = F.conv2d(o1, params['block.conv0'], padding=1)
        o2 = F.relu(batch_norm(y, params, 'block.bn1', mode), inplace=True)
        x = F.conv2d(o2, params['block.conv1'], padding=1) + x
        o = F.relu(batch_norm(x, params, 'bn', mode))
        o = F.avg_pool2d(o, o.size(3), 1, 0).view(o.size(0), -1)
        return F.linear(o, params['fc.weight'], params['fc.bias']), (x, o1)

    return f, flat


def main():
    opt = parser.parse_args()
    print('parsed options:', sorted(vars(opt))[:3])
    epoch_step = json.loads(opt.epoch_step)
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(7)
    y = torch.randint(0, 4, (53,), generator=g)
    x = torch.randn(53, 3, 8, 8, generator=g) + y.view(-1, 1, 1, 1).float()
    train_loader = DataLoader(TensorDataset(x[:40], y[:40]), opt.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[40:], y[40:]), opt.batch_size)
    f, params = resnet(opt.width, 4)

    def create_optimizer(opt, lr):
        return torch.optim.SGD([v for v in params.values() if v.requires_grad], lr, momentum=0.9, weight_decay=opt.weight_decay)

    optimizer = create_optimizer(opt, opt.lr)

    def h(sample, train):
        inputs, targets = cast(sample[0], 'float'), cast(sample[1], 'long')
        out, feats = data_parallel(f, inputs, params, train, list(range(opt.ngpu)))
        at = sum(t.pow(2).mean(1).flatten(1).mean() for t in feats)
        return F.cross_entropy(out, targets) + 1e-3 * at, out

    for epoch in range(opt.epochs):
        if epoch in epoch_step:
            optimizer = create_optimizer(opt, optimizer.param_groups[0]['lr'] * 0.2)
        total = 0
        for sample in train_loader:
            optimizer.zero_grad()
            loss, out = h(sample, True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            right = sum((h(s, False)[1].cpu().argmax(1) == s[1]).sum().item() for s in test_loader)
        z = {'epoch': epoch, 'loss': total, 'acc': right / 13, 'mean': params['bn.running_mean'].sum().item()}
        open('log.txt', 'a').write('json_stats: ' + json.dumps(z) + '\n')
        print('==> (%d/%d) loss %.5f acc %.3f' % (epoch, opt.epochs, total, z['acc']))
    torch.save(dict(params={k: v.data for k, v in params.items()}, optimizer=optimizer.state_dict()), 'model.pt7')


if __name__ == '__main__':
    main()
