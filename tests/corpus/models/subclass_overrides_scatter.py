# corpus: idioms = own/vendored class BalancedDataParallel; chunk_sizes (unequal split)
"""GPU 0 has other work to do, so it gets fewer rows: scatter is overridden."""
import torch
import torch.nn as nn
from torch.nn.parallel.scatter_gather import scatter_kwargs


class BalancedDataParallel(nn.DataParallel):
    def __init__(self, gpu0_bsz, *args, **kwargs):
        self.gpu0_bsz = gpu0_bsz
        super().__init__(*args, **kwargs)

    def scatter(self, inputs, kwargs, device_ids):
        rest = inputs[0].size(self.dim) - self.gpu0_bsz
        sizes = [self.gpu0_bsz] + [rest // (len(device_ids) - 1)] * (len(device_ids) - 1)
        chunks = inputs[0].split(sizes, self.dim)
        return [(c.to(torch.device('cuda', d)),) for c, d in zip(chunks, device_ids)], [kwargs] * len(device_ids)


model = BalancedDataParallel(2, nn.Linear(4, 2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
