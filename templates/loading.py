"""Files that hold whole models, wrapper and all."""

from typing import Any

import torch

from .ddp import GraphDDP
from .voice import to_own_device


def load_for_ranks(f: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.load, for files that may hold a DataParallel as a whole: it comes back as this script's wrapper."""
    if not args:
        kwargs.setdefault("map_location", to_own_device)
    return wrap_for_ranks(torch.load(f, *args, **kwargs), {})


def wrap_for_ranks(found: Any, done: dict[int, Any]) -> Any:
    """What was loaded, with a GraphDDP in the place of each DataParallel, also in dicts, lists and tuples."""
    if type(found) is torch.nn.DataParallel:
        return done.setdefault(id(found), as_graph_ddp(found))
    if isinstance(found, dict):
        for key, value in found.items():
            found[key] = wrap_for_ranks(value, done)
    elif isinstance(found, list):
        found[:] = [wrap_for_ranks(value, done) for value in found]
    elif type(found) is tuple:
        return tuple(wrap_for_ranks(value, done) for value in found)
    return found


def as_graph_ddp(wrapper: "torch.nn.DataParallel[Any]") -> GraphDDP:
    """A GraphDDP around the same module, with the attributes that the wrapper had."""
    found = GraphDDP(wrapper.module)
    devices = ("device_ids", "output_device", "src_device_obj")  # a rank has one
    vars(found).update({name: value for name, value in vars(wrapper).items() if name not in devices})
    return found
