# corpus: idioms = own/vendored class; from torch.nn.parallel import DataParallel; class method (__init__); self.attr = DP(...); device_ids from config/args/variable; device_ids=range(device_count()); attributes/methods reached through .module in the training code; attribute set on the wrapper object; isinstance(model, DataParallel); buffer or counter written in forward; optimizer created after wrap; lr_scheduler; several models wrapped in one script
# corpus: worlds = 2 3
"""A VAE whose wrapper hands unknown attributes on to the model (the MyDataParallel of a hundred forums)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DataParallel
from torch.utils.data import DataLoader, TensorDataset


class MyDataParallel(DataParallel):
    """Lets you access attributes of the underlying module."""

    def __getattr__(self, name):
        try:
            return super(MyDataParallel, self).__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


class VAE(nn.Module):
    def __init__(self, z_dim=3):
        super(VAE, self).__init__()
        self.z_dim = z_dim
        self.enc = nn.Sequential(nn.Linear(12, 10), nn.BatchNorm1d(10), nn.ReLU())
        self.mu, self.logvar = nn.Linear(10, z_dim), nn.Linear(10, z_dim)
        self.dec = nn.Sequential(nn.Linear(z_dim, 10), nn.ReLU(), nn.Linear(10, 12))
        self.register_buffer('seen', torch.zeros(1))
        self.n_calls = 0

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h)

    def decode(self, z):
        return torch.sigmoid(self.dec(z))

    def reparam(self, mu, logvar):
        if self.training:
            std = torch.exp(0.5 * logvar)
            eps = torch.randn_like(std)
            return mu + eps * std
        return mu

    def forward(self, x):
        self.seen += x.size(0)
        self.n_calls += 1
        mu, logvar = self.encode(x)
        return self.decode(self.reparam(mu, logvar)), mu, logvar

    def n_params(self):
        return sum(p.numel() for p in self.parameters())


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, z):
        return self.fc(z)


class Agent(object):
    def __init__(self, lr=5e-3):
        torch.manual_seed(8)
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        vae = VAE().to(self.device)
        self.vae = MyDataParallel(vae, device_ids=range(torch.cuda.device_count()))
        self.clf = MyDataParallel(Classifier().to(self.device), device_ids=list(range(torch.cuda.device_count())))
        self.vae.tag = 'vae-1'
        self.opt = torch.optim.Adam(list(self.vae.parameters()) + list(self.clf.parameters()), lr=lr)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.8)

    def loss(self, x, y):
        recon, mu, logvar = self.vae(x)
        bce = F.binary_cross_entropy(recon, x, reduction='sum') / x.size(0)
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / x.size(0)
        logits = self.clf(mu)
        # denoising consistency, straight on the inner method
        z2, _ = self.vae.encode(x + 0.1 * torch.randn(x.size(), device=self.device))
        return bce + kld + F.cross_entropy(logits, y) + (z2 - mu).pow(2).mean()

    def train_epoch(self, loader, epoch):
        self.vae.train()
        total = 0
        for i, (x, y) in enumerate(loader):
            x, y = x.to(self.device), y.to(self.device)
            loss = self.loss(x, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(x)
        self.sched.step()
        print('epoch %d loss %.4f seen %d calls %d' % (epoch, total / len(loader.dataset), self.vae.seen.item(), self.vae.n_calls))

    @torch.no_grad()
    def sample(self, n=5):
        self.vae.eval()
        z = torch.randn(n, self.vae.z_dim, device=self.device)
        return self.vae.decode(z).mean(0)


if __name__ == '__main__':
    g = torch.Generator().manual_seed(2)
    X, Y = torch.rand(40, 12, generator=g), torch.randint(0, 4, (40,), generator=g)
    loader = DataLoader(TensorDataset(X, Y), batch_size=9, shuffle=True)
    agent = Agent()
    print(agent.vae.tag, agent.vae.n_params(), isinstance(agent.vae, DataParallel), isinstance(agent.clf, MyDataParallel))
    for epoch in range(3):
        agent.train_epoch(loader, epoch)
        print([round(v, 4) for v in agent.sample().tolist()[:4]])
    model = agent.vae.module if isinstance(agent.vae, nn.DataParallel) else agent.vae
    torch.save(model.state_dict(), 'vae.pth')
