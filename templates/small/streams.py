"""Random numbers: what ranks draw alike."""

import random
import sys
from typing import Any

import torch


def host_streams() -> list[Any]:
    numpy = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]


def set_host_streams(states: list[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if "numpy" in sys.modules and states[2]:
        sys.modules["numpy"].random.set_state(states[2])
