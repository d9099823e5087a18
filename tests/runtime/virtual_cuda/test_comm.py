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
    "broadcast_coalesced: tensors elsewhere": (
        lambda: comm.broadcast_coalesced([ones(2, device=1)], (0, 1)),
        r"All tensors must be on devices\[0\]: 0",
    ),
    "gather: nothing": (lambda: comm.gather([]), "at least one tensor to gather from"),
    "gather: from the CPU": (
        lambda: comm.gather([ones(2, device=0), ones(2)]),
        "all input tensors to be CUDA tensors, but tensor at index 1 has device",
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


def test_minus_one_is_the_cpu_of_old_scripts(virtual: Install) -> None:
    virtual(2)
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
