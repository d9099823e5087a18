# corpus: idioms = hand-written replicate/scatter/parallel_apply/gather; device_ids from config/args/variable; computed inside the wrapped forward, gathered, then .mean()
# corpus: worlds = 2 3
"""A net and its loss, replicated by hand; their forwards keep norms and sizes in lists, and go on with them."""
import torch
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate, scatter

history = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)
        self.norms = []

    def forward(self, x):
        h = self.hidden(x).relu()
        history.append(len(x))
        self.norms.append(h.detach().norm().item())
        return self.out(h) * (1 + 0.01 * len(self.norms))


class Loss(nn.Module):
    def forward(self, y, t):
        history.append(-len(y))
        return ((y - t) ** 2).sum()


torch.manual_seed(0)
net = Net().cuda()
criterion = Loss().cuda()
devices = list(range(torch.cuda.device_count()))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(6):
    rows = 7 if step % 2 else 8
    x, t = torch.randn(rows, 4).cuda(), torch.randn(rows, 2).cuda()
    xs, ts = scatter((x,), devices), scatter(t, devices)
    ys = parallel_apply(replicate(net, devices)[:len(xs)], xs)
    losses = parallel_apply(replicate(criterion, devices)[:len(ys)], list(zip(ys, ts)))
    loss = gather([each.unsqueeze(0) for each in losses], devices[0]).sum() / rows
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step %d: loss %.4f, %s, %d norms" % (step, loss.item(), history[-4:], len(net.norms)))
torch.save({"net": net.state_dict(), "norms": sum(net.norms)}, "net.pth")
