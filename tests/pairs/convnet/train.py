"""A convolutional net with BatchNorm; a moving average of its weights; the learning rate changes every step."""
import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
images, labels = torch.randn(48, 3, 6, 6), torch.randint(0, 4, (48,))
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
model = nn.DataParallel(net.cuda())
average = copy.deepcopy(model.module)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=12)
for epoch in range(2):
    order = torch.randperm(48, generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(8):
        loss = nn.functional.cross_entropy(model(images[rows].cuda()), labels[rows].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.module.parameters()):
                ours.lerp_(theirs, 0.1)
    print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.5f}")
torch.save({"net": model.module.state_dict(), "average": average.state_dict()}, "last.pt")
