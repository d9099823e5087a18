import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(75, 8)
labels = (features[:, 0] + 0.5 * torch.randn(75) > 0.6).long()
train_loader = DataLoader(TensorDataset(features[:50], labels[:50]), batch_size=10, shuffle=True)
test_loader = DataLoader(TensorDataset(features[50:], labels[50:]), batch_size=10)

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
net = nn.DataParallel(net)
optimizer = torch.optim.Adam(net.parameters(), lr=0.03)


def evaluate():
    net.eval()
    scores, truths = [], []
    with torch.no_grad():
        for inputs, targets in test_loader:
            scores.append(net(inputs.to(device)).softmax(1)[:, 1].cpu())
            truths.append(targets)
    score, truth = torch.cat(scores), torch.cat(truths)
    guess = score > 0.5
    hits = (guess & (truth == 1)).sum().item()
    f1 = 2 * hits / max(guess.sum().item() + truth.sum().item(), 1)
    pairs = score[truth == 1][:, None] - score[truth == 0][None]
    return f1, (pairs > 0).float().mean().item()


best = 0.0
for epoch in range(6):
    net.train()
    total = 0.0
    for inputs, targets in train_loader:
        loss = nn.functional.cross_entropy(net(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
    f1, area = evaluate()
    print("epoch %d: loss %.4f, F1 %.3f, area under the curve %.3f" % (epoch, total / 50, f1, area))
    if area > best:
        best = area
        torch.save(net.module.state_dict(), "best.pt")
