import csv
import logging
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from torchvision import datasets, transforms
from dp2ddp.helpers import Rank0Loader, WholeBatchDDP, ask_rank0, count_ranks, init_distributed, make_on_rank0, open_on_rank0, rank0_first, run_on_rank0, save_on_rank0, write_on_rank0

logger = logging.getLogger(__name__)
DEFAULTS = {"epochs": 3, "batch": 64}


class Trainer:
    """Trains one model on as many GPUs as there are."""

    def __init__(self, model, gpu_ids, epochs=DEFAULTS["epochs"]):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        if len(gpu_ids) > 1:
            self.model = WholeBatchDDP(
                self.model,
                device_ids=gpu_ids,  # all of them
                output_device=gpu_ids[0],
            )
        self.epochs = epochs
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.out = Path("runs") / ask_rank0(datetime.now).strftime("%m%d-%H%M%S")
        write_on_rank0(self.out.mkdir, parents=True, exist_ok=True)
        self.writer = make_on_rank0(SummaryWriter, log_dir=str(self.out))
        run_on_rank0(logging.basicConfig, filename=self.out / "train.log", level=logging.INFO)

    def train(self, loader):
        best = float("inf")
        for epoch in range(self.epochs):
            start = time.time()
            total = 0.0
            for images, labels in loader:
                images, labels = images.to(self.device), labels.to(self.device)
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(images), labels)
                loss.backward()
                self.optimizer.step()
                total += loss.item() * images.size(0)
            mean = total / len(loader.dataset)
            self.writer.add_scalar("loss", mean, epoch)
            logger.info("epoch %d took %.1f s", epoch, time.time() - start)
            with open_on_rank0(self.out / "log.csv", "a", newline="") as f:
                csv.writer(f).writerow([epoch, mean])
            if mean < best:
                best = mean
                model = self.model.module if isinstance(self.model, WholeBatchDDP) else self.model
                save_on_rank0(model.state_dict(), self.out / "best.pt")
        run_on_rank0(np.save, self.out / "best.npy", best)


def main():
    data = rank0_first(datasets.MNIST, "data", train=True, download=True, transform=transforms.ToTensor())
    loader = Rank0Loader(data, DEFAULTS["batch"], shuffle=True, num_workers=4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    Trainer(model, list(range(count_ranks()))).train(loader)


if __name__ == "__main__":
    init_distributed()
    main()
