import os

import torch


class Hook:
    def before(self, epoch): ...

    def step(self, loss): ...

    def after(self, epoch): ...


class Epochs(Hook):
    def __init__(self, sampler):
        self.sampler = sampler

    def before(self, epoch):
        self.sampler.set_epoch(epoch)


class Log(Hook):
    def step(self, loss):
        print(loss.item())


class Checkpoint(Hook):
    def __init__(self, model, folder):
        self.model, self.folder = model, folder

    def after(self, epoch):
        torch.save(self.model.state_dict(), os.path.join(self.folder, f"{epoch}.pt"))
