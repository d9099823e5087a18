import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(50, 8)
loader = DataLoader(TensorDataset(features, features[:, :1] ** 2), batch_size=16, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for inputs, targets in loader:
    loss = nn.functional.mse_loss(net(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss %.4f" % loss.item())
