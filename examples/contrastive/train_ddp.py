"""SimCLR in small: two noisy views of each vector, InfoNCE against all others of the batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from ddp_helpers import WholeBatchDDP, init_distributed, save_on_rank0


class TwoViews(Dataset):
    """Each item is a list of two views of one sample."""

    def __init__(self, rows, features=24):
        self.samples = torch.randn(rows, features)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        return [sample + 0.3 * torch.randn_like(sample) for _ in range(2)]


class Encoder(nn.Module):
    def __init__(self, features=24, width=64, dim=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))
        self.projection = nn.Sequential(nn.ReLU(), nn.Linear(width, dim))

    def forward(self, x):
        return self.projection(self.backbone(x))


def info_nce_loss(features, temperature=0.2):
    n = features.shape[0] // 2
    features = F.normalize(features, dim=1)
    similarity = features @ features.T / temperature  # (2n, 2n)
    similarity.fill_diagonal_(float("-inf"))
    labels = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(features.device)
    return F.cross_entropy(similarity, labels), similarity.argmax(1) == labels


def main():
    torch.manual_seed(11)
    device = torch.device("cuda")
    loader = DataLoader(TwoViews(150), batch_size=32, shuffle=True)
    model = Encoder().to(device)
    model = WholeBatchDDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)

    for epoch in range(5):
        total = 0.0
        top1 = 0
        for views in tqdm(loader):
            images = torch.cat(views, dim=0).to(device)
            features = model(images)
            loss, hits = info_nce_loss(features)

            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            total += loss.item()
            top1 += hits.sum().item()
        scheduler.step(total)
        print(f"Epoch: {epoch}\tLoss: {total / len(loader):.4f}\tTop1: {top1 / (2 * len(loader.dataset)):.3f}")

    save_on_rank0({"state_dict": model.state_dict(), "epoch": epoch}, "checkpoint.pth.tar")


if __name__ == "__main__":
    init_distributed()
    main()
