# corpus: idioms = own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); torch.rand* inside the train step; p.data edits outside optimizer; clip_grad
# corpus: worlds = 2 3
"""Physics-informed net: Adam with an optimizer class of its own, then L-BFGS with a strong Wolfe line search in a closure."""
import math

import numpy as np
import torch
import torch.nn as nn
from torch.optim import Optimizer

torch.manual_seed(1234)
np.random.seed(1234)
device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')


class BertAdam(Optimizer):
    """Adam without bias correction, clipping each gradient, with a warm-up of its own."""
    def __init__(self, params, lr=1e-2, warmup=0.3, t_total=10, b1=0.9, b2=0.999, e=1e-6, weight_decay=0.01, max_grad_norm=1.0):
        super().__init__(params, dict(lr=lr, warmup=warmup, t_total=t_total, b1=b1, b2=b2, e=e, weight_decay=weight_decay, max_grad_norm=max_grad_norm))

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None:
                    continue
                grad = p.grad.data
                state = self.state[p]
                if len(state) == 0:
                    state['step'] = 0
                    state['next_m'], state['next_v'] = torch.zeros_like(p.data), torch.zeros_like(p.data)
                nn.utils.clip_grad_norm_(p, group['max_grad_norm'])
                state['next_m'].mul_(group['b1']).add_(grad, alpha=1 - group['b1'])
                state['next_v'].mul_(group['b2']).addcmul_(grad, grad, value=1 - group['b2'])
                update = state['next_m'] / (state['next_v'].sqrt() + group['e']) + group['weight_decay'] * p.data
                x = state['step'] / group['t_total']
                lr = group['lr'] * (x / group['warmup'] if x < group['warmup'] else 1.0 - x)
                p.data.add_(-lr * update)
                state['step'] += 1
        return loss


class DNN(nn.Module):
    def __init__(self, layers=(2, 10, 10, 1)):
        super().__init__()
        mods = []
        for i, o in zip(layers[:-2], layers[1:-1]):
            mods += [nn.Linear(i, o), nn.Tanh()]
        self.layers = nn.Sequential(*mods, nn.Linear(layers[-2], layers[-1]))
        self.lambda_1 = nn.Parameter(torch.tensor([0.5]))

    def forward(self, xt):
        return self.layers(xt), self.lambda_1.expand(len(xt), 1)      # a replica can only give back rows


class PhysicsInformedNN(object):
    def __init__(self, X, u):
        self.x = torch.tensor(X[:, 0:1], requires_grad=True).float().to(device)
        self.t = torch.tensor(X[:, 1:2], requires_grad=True).float().to(device)
        self.u = torch.tensor(u).float().to(device)
        self.dnn = nn.DataParallel(DNN().to(device))
        self.optimizer = torch.optim.LBFGS(self.dnn.parameters(), lr=1.0, max_iter=6, max_eval=8, history_size=5,
                                           tolerance_grad=1e-9, line_search_fn='strong_wolfe')
        self.optimizer_Adam = BertAdam(self.dnn.parameters(), lr=2e-2)
        self.iter = 0

    def net_f(self, x, t):
        u, lam = self.dnn(torch.cat([x, t], dim=1))
        u_t = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        return u, u_t + lam * u_x

    def loss(self):
        u_pred, f_pred = self.net_f(self.x, self.t)
        return torch.mean((self.u - u_pred) ** 2) + torch.mean(f_pred ** 2)

    def loss_func(self):
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.iter += 1
        if self.iter % 3 == 0:
            print('Iter %d, Loss: %.8f, l1: %.6f' % (self.iter, loss.item(), self.dnn.module.lambda_1.item()))
        return loss

    def train(self, nIter):
        self.dnn.train()
        for epoch in range(nIter):
            loss = self.loss()
            self.optimizer_Adam.zero_grad()
            loss.backward()
            self.optimizer_Adam.step()
            if epoch % 3 == 0:
                print('It: %d, Loss: %.6e, Lambda_1: %.6f' % (epoch, loss.item(), self.dnn.module.lambda_1.item()))
        for _ in range(3):
            self.optimizer.step(self.loss_func)


pts = np.random.uniform(-1, 1, (20, 2))
target = np.sin(math.pi * (pts[:, 0:1] - pts[:, 1:2]))
model = PhysicsInformedNN(pts, target)
model.train(8)
u, f = model.net_f(model.x, model.t)
np.savetxt('prediction.txt', u.detach().cpu().numpy())
print('Error u: %.6f residual %.6f' % ((model.u - u).norm().item() / model.u.norm().item(), f.abs().mean().item()))
