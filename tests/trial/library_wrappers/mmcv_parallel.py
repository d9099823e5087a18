"""A library's wrapper: lists of samples are shared out, and copied to devices, by a function of its own."""

from itertools import chain

import torch
from torch.nn.parallel import DataParallel


def copied(thing, device):
    return thing.to(torch.device("cuda", device)) if isinstance(thing, torch.Tensor) else thing


def scatter_kwargs(inputs, kwargs, target_gpus):
    parts = []
    size = -(-len(next(iter([*inputs, *kwargs.values()]))) // len(target_gpus))
    every = torch.arange(3.0)
    for number, device in enumerate(target_gpus):
        copied(every, device)
        rows = slice(number * size, (number + 1) * size)
        named = {
            name: copied(each[rows], device) if isinstance(each, (list, torch.Tensor)) else each
            for name, each in kwargs.items()
        }
        if len(named["img"]):
            parts.append(named)
    return tuple(() for _ in parts), tuple(parts)


class MMDataParallel(DataParallel):
    def __init__(self, *args, dim=0, **kwargs):
        super().__init__(*args, dim=dim, **kwargs)
        self.dim = dim

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            inputs, kwargs = self.scatter(inputs, kwargs, [-1])
            return self.module(*inputs[0], **kwargs[0])
        return super().forward(*inputs, **kwargs)

    def scatter(self, inputs, kwargs, device_ids):
        ordered = {"img": kwargs.pop("img"), **kwargs}
        return scatter_kwargs(inputs, ordered, device_ids)

    def train_step(self, *inputs, **kwargs):
        assert len(self.device_ids) == 1, "MMDataParallel only supports single GPU training"
        for t in chain(self.module.parameters(), self.module.buffers()):
            if t.device != self.src_device_obj:
                raise RuntimeError("module must have its parameters and buffers on the first device")
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
        return self.module.train_step(*inputs[0], **kwargs[0])
