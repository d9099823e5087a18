"""Virtual devices for one test, taken back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
import torch._dynamo  # sets an environment variable; before a test starts, so that no test is blamed

from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.virtual_devices import install

Install = Callable[..., VirtualDevices]


@pytest.fixture
def virtual() -> Iterator[Install]:
    """`virtual(3)`: three devices until the test ends; the random state is put back too."""
    with ExitStack() as stack:
        stack.callback(torch.set_rng_state, torch.get_rng_state())

        def start(count: int, dtype: str = "float32") -> VirtualDevices:
            installation = install(count, dtype)
            stack.callback(installation.taps.undo)
            return installation

        yield start
