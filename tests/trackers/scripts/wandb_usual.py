"""Weights & Biases as most scripts use it: settings, names, folders, summaries, pictures, artifacts."""

import argparse
import os

import torch
import torch.nn as nn
import wandb
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--dropout", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(1)
run = wandb.init(project="shapes", config=args)
config = wandb.config
config.update({"batch_size": 6})
wandb.config.update(args, allow_val_change=True)
config.decay = config.lr / 2
print("run", wandb.run.name, run.id, "config", sorted(dict(config).items()))


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first = nn.Linear(4, config.width)
        self.last = nn.Linear(config["width"], 3)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(nn.functional.dropout(x, self.config.dropout, self.training))


data = TensorDataset(torch.randn(27, 4), torch.randint(0, 3, (27,)))
loader = DataLoader(data, batch_size=config.batch_size, shuffle=True)
model = nn.DataParallel(Net(config).cuda())
wandb.watch(model, log="all")
optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
folder = os.path.join(wandb.run.dir, "models")
os.makedirs(folder, exist_ok=True)
best = 1e9
for epoch in range(config.epochs):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()
        wandb.log({"loss": loss.item()})
    wandb.log(
        {
            "total": total,
            "weights": wandb.Image(model.module.last.weight.detach().cpu().numpy(), caption=f"epoch {epoch}"),
        }
    )
    if total < best:
        best = total
        run.summary["best"] = best
        wandb.run.summary["best_epoch"] = epoch
        path = os.path.join(folder, f"{run.name}.pt")
        torch.save(model.module.state_dict(), path)
        wandb.save(path)
        artifact = wandb.Artifact("model", type="model")
        artifact.add_file(path)
        run.log_artifact(artifact)
    for group in optimizer.param_groups:
        group["lr"] = config.decay
print("best", run.summary["best"], "steps", run.step, "in", wandb.run.dir)
if "lr" in config and wandb.run is not None:
    wandb.finish()
