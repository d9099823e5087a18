"""W&B that may be missing or switched off, a run by context, settings that take the place of the arguments."""

import argparse
import os

import torch
import torch.nn as nn

try:
    import wandb

    has_wandb = True
except ImportError:
    has_wandb = False


def train(args, run):
    torch.manual_seed(args.seed)
    net = nn.DataParallel(nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).cuda())
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    for step in range(args.steps):
        x = torch.randn(10, 5)
        loss = (net(x.cuda()) - x.sum(1, keepdim=True).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run:
            run.log({"loss": loss.item()}, step=step)
    torch.save(net.state_dict(), os.path.join(run.dir if run else ".", "last.pt"))
    print(f"{args.steps} steps, loss {loss.item():.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--no-wandb", action="store_true")
    args = parser.parse_args()
    if has_wandb and not args.no_wandb:
        with wandb.init(project="sums", config=vars(args)) as run:
            train(run.config, run)
            run.summary.update({"done": True})
    else:
        train(args, None)
