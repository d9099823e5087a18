import datetime, json, os, random, sys, time
import numpy
import torch

class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

class ProgressMeter:
    def __init__(self, count, meters, prefix=""):
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        entries = [self.prefix + str(batch)]
        entries += [str(meter) for meter in self.meters]
        print("\t".join(entries))

net = torch.nn.DataParallel(Net())
