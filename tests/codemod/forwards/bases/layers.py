import torch, torch.nn as nn, torch.nn.functional as F
def double(x):
    both = [x, x]
    both.append(x)
    return both[0] + both[1]
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.size = x.size()
        return x.sign()
class Net(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.fc = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.calls, self.p, self.scales, self.table = 0, p, [1.0], {}
        for one in range(3):
            self.scales.append(one)
    def forward(self, x):
        return x
class Meter:
    def __init__(self):
        self.seen = []
    def update(self, value):
        self.seen.append(value)
