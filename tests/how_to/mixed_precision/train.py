import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(50, 8)
loader = DataLoader(TensorDataset(features, features[:, :1] ** 2), batch_size=12, shuffle=True)

net = nn.DataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")

for epoch in range(3):
    for inputs, targets in loader:
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(net(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    print("epoch %d: loss %.4f, scale %g" % (epoch, loss.item(), scaler.get_scale()))
