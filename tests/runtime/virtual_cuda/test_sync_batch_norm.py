"""The kernels of SyncBatchNorm over two ranks' rows equal batch norm over all rows."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dp2ddp.runtime.virtual_cuda import cuda_kernels as kernels


def test_two_ranks_equal_the_whole_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(10, 3, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    weight, bias = (torch.randn(3, dtype=torch.float64, generator=generator) for _ in range(2))
    for tensor in (x, weight, bias):
        tensor.requires_grad_()
    running = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    whole = F.batch_norm(x, *running, weight, bias, training=True, momentum=0.1, eps=1e-5)
    expected = torch.autograd.grad(whole, (x, weight, bias), dy)

    ours = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    with torch.no_grad():
        parts, slopes = x.split([6, 4]), dy.split([6, 4])
        means, invstds = (
            torch.stack(each) for each in zip(*(kernels.stats(part, 1e-5) for part in parts), strict=True)
        )
        counts = torch.tensor([6 * 4, 4 * 4])
        mean, invstd = kernels.gather_stats(x, means, invstds, *ours, 0.1, 1e-5, counts)
        outputs = [kernels.normalise(part, weight, bias, mean, invstd, 1e-5) for part in parts]
        sums = [
            kernels.reduce_backward(dy_r, x_r, mean, invstd, weight)
            for dy_r, x_r in zip(slopes, parts, strict=True)
        ]
        sum_dy, sum_dy_xmu, d_weight, d_bias = (sum(each) for each in zip(*sums, strict=True))
        dx = [
            kernels.normalise_backward(dy_r, x_r, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)  # type: ignore[arg-type]
            for dy_r, x_r in zip(slopes, parts, strict=True)
        ]

    found = (torch.cat(outputs), torch.cat(dx), d_weight, d_bias, *ours)
    for one, other in zip(found, (whole, *expected, *running), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
