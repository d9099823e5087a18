"""A conv net with BatchNorm, Adam, an evaluation in each epoch, and a checkpoint with the buffers."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
images = torch.randn(18, 3, 6, 6)
labels = torch.randint(4, (18,))
loader = DataLoader(TensorDataset(images, labels), batch_size=6, shuffle=True)
test = DataLoader(TensorDataset(images[:12] + 0.1, labels[:12]), batch_size=6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


net = nn.DataParallel(Net().cuda())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(3):
    net.train()
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    wrong, right = 0.0, 0
    with torch.no_grad():
        for x, y in test:
            out = net(x.cuda())
            wrong += F.cross_entropy(out, y.cuda(), reduction="sum").item()
            right += (out.argmax(1).cpu() == y).sum().item()
    print(f"epoch {epoch}: test loss {wrong / 12:.6f}, {right} of 12 right")
torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")
