# corpus: idioms = hand-written replicate/scatter/parallel_apply/gather
"""No module at all: a dict of tensors, replicated and applied by hand, as in functional wide resnets."""
import torch
import torch.nn.functional as F
from torch.nn.parallel._functions import Broadcast
from torch.nn.parallel import scatter, parallel_apply, gather


def f(x, params):
    return F.linear(F.relu(F.linear(x, params['w1'])), params['w2'])


def data_parallel(f, x, params, device_ids, output_device=0):
    names, tensors = zip(*sorted(params.items()))
    copies = Broadcast.apply(device_ids, *tensors)
    n = len(tensors)
    replicas = [lambda x, p=dict(zip(names, copies[i * n:(i + 1) * n])): f(x, p) for i in range(len(device_ids))]
    return gather(parallel_apply(replicas, scatter(x, device_ids)), output_device)


params = {'w1': torch.randn(8, 4).cuda().requires_grad_(), 'w2': torch.randn(2, 8).cuda().requires_grad_()}
optimizer = torch.optim.SGD(params.values(), 0.1)
for step in range(8):
    x, y = torch.randn(8, 4).cuda(), torch.randint(0, 2, (8,)).cuda()
    loss = F.cross_entropy(data_parallel(f, x, params, [0, 1]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
