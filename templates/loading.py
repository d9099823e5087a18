"""Files that hold whole models, wrapper and all."""

from typing import Any

import torch

from .ddp import GraphDDP
from .own_device import to_own_device


def load_for_ranks(f: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.load, for files that may hold a DataParallel as a whole: it comes back as this script's wrapper."""
    if not args:
        kwargs.setdefault("map_location", to_own_device)
    return wrap_for_ranks(torch.load(f, *args, **kwargs), {})


def wrap_for_ranks(loaded: Any, done: dict[int, Any]) -> Any:
    """What was loaded, with a GraphDDP in the place of each DataParallel, also in dicts, lists and tuples."""
    if type(loaded) is torch.nn.DataParallel:
        return done.setdefault(id(loaded), as_graph_ddp(loaded))
    if isinstance(loaded, dict):
        for key, value in loaded.items():
            loaded[key] = wrap_for_ranks(value, done)
    elif isinstance(loaded, list):
        loaded[:] = [wrap_for_ranks(value, done) for value in loaded]
    elif type(loaded) is tuple:
        return tuple(wrap_for_ranks(value, done) for value in loaded)
    return loaded


def as_graph_ddp(wrapper: "torch.nn.DataParallel[Any]") -> GraphDDP:
    """A GraphDDP around the same module, with the attributes that the wrapper had."""
    wrapped = GraphDDP(wrapper.module)
    devices = ("device_ids", "output_device", "src_device_obj")  # a rank has one
    vars(wrapped).update({name: value for name, value in vars(wrapper).items() if name not in devices})
    return wrapped
