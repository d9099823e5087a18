# corpus: idioms = nn.DataParallel; several models wrapped in one script; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap); model.module access; hasattr(model,'module'); other helper function; rebinds the same name; batch statistics in forward other than BN (minibatch stddev, global memory bank); optimizer created after wrap; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer)
# corpus: worlds = 3 4
"""Feature distillation by forward hooks: what a hook keeps is read behind the forward."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

activation = {}
losses_seen = []


def get_activation(name):
    def hook(model, input, output):
        activation[name] = output.detach()
    return hook


class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.layer = nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))
        self.fc = nn.Linear(c + 1, 3)
        self.feats = []

    def forward(self, x):
        h = self.layer(self.stem(x))
        self.feats.append(h.mean((2, 3)))
        std = (h.var(0, unbiased=False) + 1e-8).sqrt().mean()
        std = std.expand(h.size(0), 1)
        return self.fc(torch.cat([h.mean((2, 3)), std], 1))


def build(c, train=True):
    net = Net(c)
    if train:
        net = nn.DataParallel(net).cuda()
    else:
        net = nn.DataParallel(net).cuda()
        net.eval()
    return net


torch.manual_seed(0)
teacher, student = build(6, train=False), build(3)
adaptor = nn.Linear(3, 6).cuda()
(teacher.module if hasattr(teacher, 'module') else teacher).layer.register_forward_hook(get_activation('t'))
student.module.stem.register_forward_hook(get_activation('s'))
opt = torch.optim.SGD([*student.parameters(), *adaptor.parameters()], lr=0.05, momentum=0.9)
g = torch.Generator().manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(28, 1, 6, 6, generator=g), torch.randint(0, 3, (28,), generator=g)), batch_size=8, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        student.module.feats.clear()
        teacher.module.feats.clear()
        with torch.no_grad():
            t = teacher(x)
        s = student(x)
        feat_s = torch.cat([f.cuda() for f in student.module.feats])
        feat_t = torch.cat([f.cuda() for f in teacher.module.feats])
        loss = F.cross_entropy(s, y) + F.kl_div(s.log_softmax(1), t.softmax(1), reduction='batchmean')
        loss = loss + F.mse_loss(adaptor(feat_s), feat_t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses_seen.append(loss.item())
    print(epoch, '%.5f' % losses_seen[-1], 'hook %s %.5f' % (tuple(activation['s'].shape), activation['s'].abs().mean().item()),
          '%.5f' % activation['t'].mean().item())
