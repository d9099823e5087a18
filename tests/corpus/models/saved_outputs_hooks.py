# corpus: idioms = nn.DataParallel; rebinds the same name; architecture name (alexnet/vgg -> wrap .features only); submodule obj.attr = DP(obj.attr); submodule only (model.features / model.encoder), head outside; other; model.module access; notebook cell; batch statistics in forward other than BN (minibatch stddev, global memory bank); .to(device); AverageMeter
# corpus: worlds = 3 4
"""Exported from a notebook: perceptual features kept by a hook object, a meter that lives inside of the network."""
# coding: utf-8

# In[1]:
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
arch = 'vgg'

# In[2]:


class SaveOutput:
    def __init__(self):
        self.outputs = []
        self.norms = []
        self.n_calls = 0

    def __call__(self, module, module_in, module_out):
        self.outputs.append(module_out)
        self.norms.append(module_out.detach().cpu().norm())
        self.n_calls += 1

    def clear(self):
        self.outputs = []


class Meter:
    def __init__(self):
        self.history = {}
        self.total = 0.0

    def update(self, key, value):
        self.history.setdefault(key, []).append(round(value, 4))
        self.total += value


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.meter = Meter()

    def forward(self, x):
        h = F.relu(self.c1(x))
        self.meter.update('h', h.mean().item())
        return F.relu(self.c2(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.classifier = nn.Linear(4, 3)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


# In[3]:
model = Net()
save_output = SaveOutput()
for layer in model.modules():
    if isinstance(layer, nn.Conv2d):
        layer.register_forward_hook(save_output)
if arch in ('vgg', 'alexnet'):
    model.features = nn.DataParallel(model.features)
    model.to(device)
else:
    model = nn.DataParallel(model).to(device)
print(model)

# In[4]:
g = torch.Generator().manual_seed(0)
X, Y = torch.randn(23, 3, 6, 6, generator=g), torch.randint(0, 3, (23,), generator=g)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
for epoch in range(3):
    for lo in range(0, len(X), 8):
        x, y = X[lo:lo + 8].to(device), Y[lo:lo + 8].to(device)
        save_output.clear()
        out = model(x)
        first = torch.cat([o.to(device) for o in save_output.outputs[0::2]])
        style = (first.flatten(2) @ first.flatten(2).transpose(1, 2)).pow(2).mean()
        loss = F.cross_entropy(out, y) + 1e-3 * style
        opt.zero_grad()
        loss.backward()
        opt.step()
    print('%d loss %.5f style %.5f kept %d calls %d' % (epoch, loss.item(), style.item(), len(save_output.outputs), save_output.n_calls))

# In[5]:
print(model.features.module.meter.history['h'][-4:], round(model.features.module.meter.total, 4), round(float(sum(save_output.norms)), 4))
torch.save(model.state_dict(), 'net.pth')
