# corpus: idioms = autograd.grad / create_graph through the wrapped model (attack, penalty); retain_graph/create_graph/autograd.grad; couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode); training loop without torch DataLoader (own iterator, queue, replay buffer)
# corpus: worlds = 2 3
"""Meta-learning a sine: inner steps by autograd.grad with create_graph, fast weights handed to the forward."""
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(0)
random.seed(0)
torch.manual_seed(0)
INNER_LR, INNER_STEPS, K = 0.02, 2, 5
META_BATCH, META_STEPS = 2, 4


class SineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(1, 12), nn.Linear(12, 12), nn.Linear(12, 1)

    def forward(self, x, w1=None, b1=None, w2=None, b2=None, w3=None, b3=None):
        # fast weights arrive with a row for each sample, so that scatter can cut them
        if w1 is None:
            return self.l3(torch.tanh(self.l2(torch.tanh(self.l1(x)))))
        h = torch.tanh(torch.einsum('bi,boi->bo', x, w1) + b1)
        h = torch.tanh(torch.einsum('bi,boi->bo', h, w2) + b2)
        return torch.einsum('bi,boi->bo', h, w3) + b3


class SineTask(object):
    def __init__(self):
        self.amp = np.random.uniform(0.1, 5.0)
        self.phase = random.random() * math.pi

    def sample(self, k):
        x = torch.from_numpy(np.random.uniform(-5, 5, (k, 1))).float()
        return x.cuda(), (self.amp * torch.sin(x + self.phase)).cuda()


def adapt(net, x, y, first_order=False):
    weights = list(net.parameters())
    fast = None
    for step in range(INNER_STEPS):
        pred = net(x) if fast is None else net(x, *[w.unsqueeze(0).expand(len(x), *w.shape) for w in fast])
        loss = F.mse_loss(pred, y)
        grads = torch.autograd.grad(loss, weights if fast is None else fast, create_graph=not first_order)
        fast = [w - INNER_LR * g for w, g in zip(weights if fast is None else fast, grads)]
    return fast, loss


net = nn.DataParallel(SineNet().cuda())
meta_opt = torch.optim.Adam(net.parameters(), lr=5e-3)
history = []
for it in range(META_STEPS):
    meta_opt.zero_grad()
    meta_loss = 0
    for _ in range(META_BATCH):
        task = SineTask()
        xs, ys = task.sample(K)
        fast, inner = adapt(net, xs, ys, first_order=it % 3 == 2)
        xq, yq = task.sample(2 * K)
        pred = net(xq, *[w.unsqueeze(0).expand(len(xq), *w.shape) for w in fast])
        meta_loss = meta_loss + F.mse_loss(pred, yq) / META_BATCH
    meta_loss.backward()
    total = sum(p.grad.norm().item() for p in net.parameters())
    meta_opt.step()
    history.append(meta_loss.item())
    print('meta step %d loss %.5f inner %.5f grad %.5f' % (it, meta_loss.item(), inner.item(), total))
np.savetxt('history.txt', np.array(history))
