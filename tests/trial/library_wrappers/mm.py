"""Keyword inputs in lists, losses by name, and a method for one device only."""

import torch
import torch.nn as nn
from mmcv.parallel import MMDataParallel


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(6, 2)

    def forward(self, img, img_metas, return_loss=True):
        print("inside", len(img), img.device)
        out = self.head(self.body(img))
        weights = torch.tensor([meta["scale"] for meta in img_metas], device=out.device)
        if return_loss:
            return {"loss_a": (out * weights[:, None]).pow(2).mean(), "loss_b": out.abs().mean()}
        return out

    def train_step(self, data):
        return self(**data)


torch.manual_seed(3)
model = MMDataParallel(Detector(), device_ids=range(torch.cuda.device_count())).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    metas = [{"scale": 1.0 + 0.1 * i, "name": f"{step}-{i}"} for i in range(8)]
    losses = model(img=torch.randn(8, 4), img_metas=metas)
    loss = sum(each.mean() for each in losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), {name: len(each) for name, each in losses.items()})
model.eval()
with torch.no_grad():
    print(model(return_loss=False, img=torch.randn(2, 4), img_metas=metas[:2]).shape)
try:
    model.train_step({"img": torch.randn(2, 4), "img_metas": metas[:2]})
except AssertionError as error:
    print(error)
torch.save(model.module.state_dict(), "net.pt")
