"""torch.nn.parallel.comm on virtual devices: what it refuses, with torch's own words (torch/csrc/cuda/comm.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm

from .conftest import Install


def ones(*shape: int, device: Any = "cpu") -> torch.Tensor:
    return torch.ones(shape, device=device)


REFUSED = {
    "broadcast: both devices and out": (
        lambda: comm.broadcast(ones(2), (0, 1), out=[ones(2, device=0)]),
        "Exactly one of 'devices' and 'out'",
    ),
    "broadcast: neither": (lambda: comm.broadcast(ones(2)), "Exactly one of 'devices' and 'out'"),
    "broadcast: out on the CPU": (
        lambda: comm.broadcast(ones(2), out=[ones(2, device=0), ones(2)]),
        "all output tensors to be CUDA tensors, but output tensor at index 1 has device 'cpu'",
    ),
    "broadcast: out of another shape": (
        lambda: comm.broadcast(ones(2), out=[ones(2, device=0), ones(1, 2, device=1)]),
        r"same shape as the source tensor \[2\], but output tensor at index 1 has shape \[1, 2\]",
    ),
    "broadcast: device -1": (
        lambda: comm.broadcast(ones(2), (0, -1)),
        "non-negative device index, but got -1",
    ),
    "broadcast_coalesced: tensors elsewhere": (
        lambda: comm.broadcast_coalesced([ones(2, device=1)], (0, 1)),
        r"All tensors must be on devices\[0\]: 0",
    ),
    "scatter: both": (
        lambda: comm.scatter(ones(2), (0, 1), out=[ones(1, device=0)]),
        "'devices' must not be specified when 'out' is specified",
    ),
    "scatter: sizes and out": (
        lambda: comm.scatter(ones(2), chunk_sizes=(1, 1), out=[ones(1, device=0)]),
        "'chunk_sizes' must not be specified when 'out' is specified",
    ),
    "scatter: no device": (lambda: comm.scatter(ones(2), ()), "at least one device to scatter to"),
    "scatter: no out": (lambda: comm.scatter(ones(2), out=[]), "at least one output tensor to scatter to"),
    "scatter: out on the CPU": (
        lambda: comm.scatter(ones(2), out=[ones(1, device=0), ones(1)]),
        "all output tensors to be CUDA tensors, but output tensor at index 1 has device 'cpu'",
    ),
    "scatter: out of other dimensions": (
        lambda: comm.scatter(ones(2, 2), out=[ones(1, 2, device=0), ones(1, device=1)]),
        r"Output tensor at index 1 has incorrect shape: \[1\]. Expected same shape except for scatter dim 0",
    ),
    "scatter: out of another size beside dim": (
        lambda: comm.scatter(ones(2, 2), out=[ones(2, 1, device=0), ones(3, 1, device=1)], dim=-1),
        r"Output tensor at index 1 has incorrect shape: \[3, 1\]. Expected same shape except for scatter dim 1",
    ),
    "scatter: out too large": (
        lambda: comm.scatter(ones(2), out=[ones(2, device=0), ones(2, device=1)]),
        "does not match the source tensor size at dim 0. Expected 2, but got total size 4",
    ),
    "scatter: sizes of another number": (
        lambda: comm.scatter(ones(2), (0, 1), (2,)),
        r"len\(devices\) = 2 and len\(chunk_sizes\) = 1",
    ),
    "gather: nothing": (lambda: comm.gather([]), "at least one tensor to gather from"),
    "gather: nothing into out": (lambda: comm.gather([], out=ones(2)), "at least one tensor to gather from"),
    "gather: destination and out": (
        lambda: comm.gather([ones(2, device=0)], destination="cpu", out=ones(2)),
        "'destination' must not be specified when 'out' is specified",
    ),
    "gather: from the CPU": (
        lambda: comm.gather([ones(2, device=0), ones(2)]),
        "all input tensors to be CUDA tensors, but tensor at index 1 has device",
    ),
    "gather: out of another shape": (
        lambda: comm.gather([ones(1, device=0), ones(1, device=1)], out=ones(3)),
        r"Expected out tensor to have shape \[2\], but got \[3\]",
    ),
    "gather: other dimensions": (
        lambda: comm.gather([ones(1, device=0), ones(1, 1, device=1)]),
        "Expected all input tensors to have the same number of dimensions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses(virtual: Install, name: str) -> None:
    virtual(2)
    call, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_what_is_given_is_filled(virtual: Install) -> None:
    virtual(2)
    source = torch.arange(6.0).reshape(3, 2)
    copies = [ones(3, 2, device=0), ones(3, 2, device=1)]
    assert all(torch.equal(copy.cpu(), source) for copy in comm.broadcast(source, out=copies))
    parts = comm.scatter(source, out=[ones(1, 2, device=0), ones(2, 2, device=1)])
    assert [part.device.index for part in parts] == [0, 1]
    for out in (ones(3, 2), ones(3, 2, device=1)):
        assert comm.gather(parts, out=out) is out
        assert torch.equal(out.cpu(), source)


def test_minus_one_is_the_cpu_of_old_scripts(virtual: Install) -> None:
    virtual(2)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert comm.gather([ones(2, device=0), ones(2, device=1)], destination=-1).device.type == "cpu"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda net: nn.DataParallel(net)(ones(4, 4)),
            ValueError,
            "uninitialized parameter in <method 'view_as'",  # torch/csrc/autograd/python_function.cpp
            id="with gradients",
        ),
        pytest.param(
            lambda net: nn.parallel.replicate(net, [0, 1], detach=True),
            RuntimeError,
            "Modules with uninitialized parameters can't be used with `DataParallel`",
            id="without",
        ),
    ],
)
def test_lazy_modules_fail_where_torchs_own_do(
    virtual: Install, call: Callable[[nn.Module], Any], error: type[Exception], message: str
) -> None:
    virtual(2)
    with pytest.raises(error, match=message):
        call(nn.LazyLinear(2).cuda())
