# corpus: idioms = torch.nn.DataParallel; nn.DataParallel; class method (other); method parallelize()/multi_gpu()/set_device() does the wrap later; several models wrapped in one script; other; is CUDA available / use_cuda flag only; model.module access; DP(...).cuda(); device_ids from config/args/variable; device_ids literal/comprehension list
# corpus: worlds = 2 3
"""Wraps in a dict, a list, by setattr; wrapped only to load."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Holder:
    model_names = ['A', 'B']

    def __init__(self):
        for n in self.model_names:
            setattr(self, 'net' + n, nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)).cuda())

    def parallelize(self):
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            setattr(self, 'net' + name, torch.nn.DataParallel(net, list(range(torch.cuda.device_count()))))


torch.manual_seed(0)
h = Holder()
h.parallelize()
nets = {'enc': nn.DataParallel(nn.Linear(4, 4).cuda()), 'dec': nn.DataParallel(nn.Linear(4, 3)).cuda()}
heads = [nn.DataParallel(nn.Linear(3, 3).cuda()) for _ in range(2)]
flag = torch.cuda.is_available()
last = nn.DataParallel(nn.Linear(3, 3).cuda()) if flag else nn.Linear(3, 3)
model = nn.Linear(3, 2).cuda()
model = nn.DataParallel(model)
model.load_state_dict({k: v + 0.1 for k, v in model.state_dict().items()})
model = model.module
params = [*h.netA.parameters(), *h.netB.parameters(), *[p for n in nets.values() for p in n.parameters()],
          *[p for n in heads for p in n.parameters()], *last.parameters(), *model.parameters()]
opt = torch.optim.SGD(params, lr=0.1, momentum=0.9)
g = torch.Generator().manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(28, 4, generator=g), torch.randint(0, 2, (28,), generator=g)), batch_size=8, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        z = nets['dec'](F.relu(nets['enc'](h.netB(h.netA(x)))))
        for head in heads:
            z = z + head(z)
        loss = F.cross_entropy(model(last(z)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
