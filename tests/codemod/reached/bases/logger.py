import logging
import torch


def get_logger(name="net", path=None):
    logger = logging.getLogger(name)
    logger.addHandler(logging.FileHandler(path))
    return logger


class Net(torch.nn.Module):
    def forward(self, x):
        if x.abs().max() > 50:
            get_logger("all").warning("large")
        return x


get_logger(path="run.log")
net = torch.nn.DataParallel(Net())
