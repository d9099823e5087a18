import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(TensorDataset(torch.randn(44, 6) * 0.3 + 1), batch_size=10, shuffle=True)

generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6)).to(device)
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(device)
generator, critic = nn.DataParallel(generator), nn.DataParallel(critic)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))


def penalty(real, fake):
    share = torch.rand(len(real), 1, device=device)
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


for epoch in range(2):
    for (real,) in loader:
        real = real.to(device)
        fake = generator(torch.randn(len(real), 4, device=device))

        critic_optimizer.zero_grad()
        critic_loss = critic(fake.detach()).mean() - critic(real).mean()
        (critic_loss + 10 * penalty(real, fake.detach())).backward()
        critic_optimizer.step()

        generator_optimizer.zero_grad()
        generator_loss = -critic(fake).mean()
        generator_loss.backward()
        generator_optimizer.step()
    print("epoch %d: critic %.4f, generator %.4f" % (epoch, critic_loss.item(), generator_loss.item()))
