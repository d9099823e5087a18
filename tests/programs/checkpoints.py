"""Writes checkpoints of every usual form in the middle of an epoch; or goes on from each of them (tests/test_checkpoints.py)."""
import argparse
import hashlib
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--write", help="folder for the checkpoints")
parser.add_argument("--resume", help="folder of the checkpoints")
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        return self.fc(nn.functional.dropout(x, 0.3, self.training))


def make(wrapped=True):
    torch.manual_seed(4)
    np.random.seed(4)
    random.seed(4)
    model = Net().cuda()
    return nn.DataParallel(model) if wrapped else model


def make_optimizer(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)


def streams():
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def set_streams(state):
    torch.set_rng_state(state["torch"].cpu())
    torch.cuda.set_rng_state_all([each.cpu() for each in state["cuda"]])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def train(model, optimizer, scheduler, first, last):
    x = torch.randn(32, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    y = torch.randint(3, (32,), generator=torch.Generator().manual_seed(2))
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=False)
    for number, (images, labels) in enumerate(loader):
        if not first <= number < last:
            continue
        with torch.random.fork_rng():  # a look at the model on the way: what it draws does not count
            model(images.cuda())
        kept = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(torch.cuda.get_rng_state(1))
        model(images.cuda())
        torch.cuda.set_rng_state(kept)
        noise = torch.randn(8, 1, 1, 1, device="cuda") * 0.1
        loss = nn.functional.cross_entropy(model(images.cuda() + noise), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


def digest(model):
    sha = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        sha.update(name.replace("module.", "").encode() + value.cpu().numpy().tobytes())
    return sha.hexdigest()[:16]


def path(form):
    return os.path.join(args.write or args.resume, form + ".pt")


if args.write:
    os.makedirs(args.write, exist_ok=True)
    model = make()
    optimizer, scheduler = make_optimizer(model)
    train(model, optimizer, scheduler, 0, 2)
    print("written at", digest(model))
    torch.save(model.state_dict(), path("prefixed"))
    torch.save(model.module.state_dict(), path("unprefixed"))
    state = {"model": model.state_dict(), "step": 2, "streams": streams()}
    state.update(optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict())
    torch.save(state, path("whole"))
    torch.save(model, path("wrapper"))
    torch.save(model.module, path("module"))
    train(model, optimizer, scheduler, 2, 4)
    print("in one go", digest(model))

if args.resume:
    def go_on(form, model, optimizer=None, scheduler=None):
        if optimizer is None:
            optimizer, scheduler = make_optimizer(model)
        train(model, optimizer, scheduler, 2, 4)
        print(form, digest(model))

    model = make()
    model.load_state_dict(torch.load(path("prefixed")))
    go_on("prefixed", model)

    model = make()
    model.module.load_state_dict(torch.load(path("unprefixed"), map_location="cpu"))
    go_on("unprefixed", model)

    model = make(wrapped=False)
    state = torch.load(path("prefixed"), map_location=lambda storage, location: storage)
    model.load_state_dict({name[7:]: value for name, value in state.items()})
    model = nn.DataParallel(model)
    go_on("prefix taken off", model)

    model = make()
    state = torch.load(path("unprefixed"), map_location={"cuda:1": "cuda:0"})
    model.load_state_dict({"module." + name: value for name, value in state.items()})
    go_on("prefix put on", model)

    model = make()
    answer = model.load_state_dict(torch.load(path("unprefixed"), map_location=torch.device("cuda")), strict=False)
    print(len(answer.missing_keys), len(answer.unexpected_keys))
    go_on("not strict", model)

    model = make()
    try:
        model.load_state_dict(torch.load(path("unprefixed")))
    except RuntimeError as error:
        print("Missing key" in str(error), "Unexpected key" in str(error), type(error).__name__)
    go_on("refused", model)

    model = make()
    optimizer, scheduler = make_optimizer(model)
    state = torch.load(path("whole"), map_location="cuda:0", weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    set_streams(state["streams"])
    go_on("whole", model, optimizer, scheduler)

    model = torch.load(path("wrapper"), weights_only=False)
    print(type(model.module).__name__, hasattr(model, "module"))
    go_on("wrapper", model)

    model = torch.load(path("module"), weights_only=False)
    go_on("module", nn.DataParallel(model))
