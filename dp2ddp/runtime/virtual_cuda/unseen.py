"""Functions that no mode sees, since torch has them in C++ without an override: results are where arguments are.

Transforms of torch.func wrap and unwrap their tensors with such functions, scripts of torch.jit are called by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch._ops
import torch.jit._serialization
from torch._functorch.autograd_function import custom_function_call
from torch._subclasses.meta_utils import MetaTensorDescriber

from dp2ddp.runtime.virtual_cuda.autograd_places import present
from dp2ddp.runtime.virtual_cuda.function_mode import Args, Handlers, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import Machine, common_place, place_of, put, put_missing, tensors_in
from dp2ddp.taps import Function, Taps

HANDLERS: Handlers = {}
# torch/csrc/functorch/init.cpp: each takes a tensor first, and gives one.
_WRAPPERS = """
    _add_batch_dim _remove_batch_dim _unwrap_batched _wrap_for_grad _unwrap_for_grad
    _wrap_functional_tensor _unwrap_functional_tensor get_unwrapped
"""


def follow_unseen(taps: Taps, mode: VirtualDevices) -> None:
    """Give results of functions that no mode sees the place of their arguments."""
    _follow_transforms(taps)
    _follow_scripts(taps, mode)
    _follow_script_files(taps, mode.machine)
    taps.around("describe_tensor", _without_modes, MetaTensorDescriber)
    taps.after("as_subclass", _put_where_the_first_is, torch.Tensor)
    taps.after("from_dlpack", _put_where_the_first_is, torch, torch.utils.dlpack)


def _put_where_the_first_is(result: Any, *args: Any, **kwargs: Any) -> None:
    put(result, place_of(args[0]) if args else None)


def _follow_transforms(taps: Taps) -> None:
    """torch.func.grad, vmap, jacrev and the others."""
    functorch = torch._C._functorch
    for name in _WRAPPERS.split():
        original = getattr(functorch, name, None)
        if original is None:  # in another version of torch
            continue
        holders = list(_holders_of(original))
        taps.after(name, _put_where_the_first_is, functorch)
        for owner, own_name in holders:
            taps.set(owner, own_name, getattr(functorch, name))


def _holders_of(function: Function) -> Iterator[tuple[Any, str]]:
    """The modules of torch that have imported the function, each with its own name for it."""
    for module_name, module in sys.modules.copy().items():
        if module_name.startswith("torch._functorch."):
            yield from ((module, name) for name, value in list(vars(module).items()) if value is function)


@answers(HANDLERS, custom_function_call)
def _custom_function(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """An autograd.Function under a transform is called by an operator; its forward needs the modes (torch/_ops.py)."""
    keys: Any = torch._ops._compute_keyset(args, kwargs, func.non_fallthrough_keys)  # type: ignore[no-untyped-call]
    with present(mode):
        return func.dispatch(keys.highestPriorityTypeId(), *args, **kwargs)


def _follow_scripts(taps: Taps, mode: VirtualDevices) -> None:
    """A script draws from the stream of the device that it runs on, for as long as it runs."""

    def on_device(call: Function, script: Any, /, *args: Any, **kwargs: Any) -> Any:
        place = common_place(tensors_in(args) + tensors_in(kwargs.values()))
        if place is None:
            return call(script, *args, **kwargs)
        if place < 0:
            return put_missing(call(script, *args, **kwargs), place)
        return put_missing(mode.streams.draw(place, call, (script, *args), kwargs), place)

    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        taps.around("__call__", on_device, kind)


def _follow_script_files(taps: Taps, machine: Machine) -> None:
    """torch.jit.load(f, map_location): what is read lies in the CPU's memory, and is marked."""

    def load_script(load: Function, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = None if map_location is None else machine.place(map_location)
        script = load(f, map_location if place is None else "cpu", *args, **kwargs)
        put([*script.parameters(), *script.buffers()], place)
        return script

    taps.around("load", load_script, torch.jit, torch.jit._serialization)


def _without_modes(function: Function, *args: Any, **kwargs: Any) -> Any:
    """torch.export traces with fake tensors: fake ones of the CPU, since one of CUDA would ask for the driver."""
    with torch._C.DisableTorchFunction():
        return function(*args, **kwargs)
