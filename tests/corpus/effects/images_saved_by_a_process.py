# corpus: idioms = torch.nn.DataParallel; training loop without torch DataLoader (own iterator, queue, replay buffer); torch.save
"""Super resolution in the usual shape: a background process saves what the test makes, out of a queue."""

import multiprocessing
import os
import time

import numpy as np
import torch
import torch.nn as nn


class Checkpoint:
    def __init__(self, folder):
        self.dir = folder
        os.makedirs(os.path.join(folder, "results"), exist_ok=True)

    def begin_background(self):
        self.queue = multiprocessing.Queue()

        def bg_target(queue):
            while True:
                if not queue.empty():
                    filename, array = queue.get()
                    if filename is None:
                        break
                    np.save(filename, array)

        self.process = [multiprocessing.Process(target=bg_target, args=(self.queue,)) for _ in range(2)]
        for p in self.process:
            p.start()

    def end_background(self):
        for _ in self.process:
            self.queue.put((None, None))
        while not self.queue.empty():
            time.sleep(0.01)
        for p in self.process:
            p.join()

    def save_results(self, name, image):
        self.queue.put((os.path.join(self.dir, "results", name + ".npy"), image.numpy()))

    def save(self, model, epoch):
        torch.save(model.state_dict(), os.path.join(self.dir, "model_latest.pt"))
        torch.save({"epoch": epoch}, os.path.join(self.dir, "epoch.pt"))


class Upscale(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))
        self.tail = nn.PixelShuffle(2)

    def forward(self, x):
        return self.tail(self.body(x))


def main():
    torch.manual_seed(7)
    high = torch.rand(14, 1, 8, 8)
    low = nn.functional.avg_pool2d(high, 2)
    model = nn.DataParallel(Upscale().cuda())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ckp = Checkpoint("experiment")
    for epoch in range(2):
        model.train()
        for first in range(0, 14, 5):
            sr = model(low[first : first + 5].cuda())
            loss = nn.functional.l1_loss(sr, high[first : first + 5].cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("[Epoch %d] loss %.6f" % (epoch, loss.item()))
        model.eval()
        ckp.begin_background()
        with torch.no_grad():
            for i in range(4):
                ckp.save_results("image%d" % i, model(low[i : i + 1].cuda()).cpu())
        ckp.end_background()
        ckp.save(model.module, epoch)


if __name__ == "__main__":
    main()
