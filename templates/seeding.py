"""Seeds that are set while training."""

from collections.abc import Callable
from typing import Any

from .ddp import GraphDDP


def seed_again(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch.manual_seed, or its like, where the same seed may be set more than once.

    It seeds all devices, so what a replica draws from begins anew as well. A rank notices another seed by itself;
    the same one it has to be told of.
    """
    result = function(*args, **kwargs)
    GraphDDP.device_stream.seed = None
    return result
