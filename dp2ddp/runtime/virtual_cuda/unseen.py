"""What no mode sees, since torch has it below Python: the engine's backward pass, and functions without an override.

The engine makes tensors that nobody has marked. Transforms of torch.func wrap and unwrap theirs with such functions,
scripts of torch.jit are called by one: results are where arguments are.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
import torch._ops
import torch.autograd.function
import torch.autograd.graph
import torch.jit._serialization
import torch.utils.checkpoint
from torch._functorch.autograd_function import custom_function_call
from torch._subclasses.meta_utils import MetaTensorDescriber

from dp2ddp.runtime.virtual_cuda.function_mode import Args, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import common_place, place_of, put, put_missing, tensors_in
from dp2ddp.taps import Function, Taps

_PLACES = "_dp2ddp_places"  # on the ctx of a custom Function: where each output is
# torch/csrc/functorch/init.cpp: each takes a tensor first, and gives one.
_WRAPPERS = """
    _add_batch_dim _remove_batch_dim _unwrap_batched _wrap_for_grad _unwrap_for_grad
    _wrap_functional_tensor _unwrap_functional_tensor get_unwrapped
"""
# Any throughout: torch's own functions, wrapped with whatever arguments they take.


def follow_unseen(taps: Taps, mode: VirtualDevices) -> None:
    """Give what no mode sees the place of what it was made of."""
    _follow_autograd(taps, mode)
    _follow_scripts(taps, mode)
    _follow_transforms(taps)
    taps.around("describe_tensor", _without_modes, MetaTensorDescriber)
    taps.around("as_subclass", _put_where_the_first_is, torch.Tensor)
    taps.around("from_dlpack", _put_where_the_first_is, torch, torch.utils.dlpack)


# ---- the backward pass


def _follow_autograd(taps: Taps, mode: VirtualDevices) -> None:
    """Custom functions, hooks and checkpoints have places and modes in the backward pass.

    While a mode answers Tensor.backward it is off; hooks, backwards of Functions and checkpoints need it. So do hooks
    that pack what a forward saves, which torch calls in the middle of its functions. What no rule knows the place of is
    on the device of the loss; a gradient is where its output was, and that device is current (engine.cpp, set_device).
    """

    def backward(original: Any, node: Any, *grads: Any) -> Any:
        places = getattr(node, _PLACES, None)
        if places is None:
            return original(node, *grads)
        grads = tuple(gradient_at(grad, place) for grad, place in zip(grads, places, strict=True))
        on_device = next((place for place in places if place is not None and place >= 0), None)
        with mode.machine.at(on_device), mode.machine.unknown_at(on_device):
            return original(node, *grads)

    def run(original: Any, t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = (output for output in t_outputs if isinstance(output, torch.Tensor))
        with present(mode), mode.machine.unknown_at(place_of(next(outputs, None))):
            return original(t_outputs, *args, **kwargs)

    def hook(original: Any, hooks: Any, pack_hook: Any, unpack_hook: Any) -> None:
        original(hooks, _with_modes(mode, pack_hook), _with_modes(mode, unpack_hook))

    taps.set(torch.autograd.Function, "apply", classmethod(_apply_with_places()))
    taps.around("apply", backward, torch.autograd.function.BackwardCFunction)
    taps.around("_engine_run_backward", run, torch.autograd)
    taps.around("__init__", hook, torch.autograd.graph.saved_tensors_hooks)
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns
    without_places = {**checks, "default": _shape_and_dtype}
    taps.set(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", without_places)


def gradient_at(grad: Any, place: int | None) -> Any:
    """The gradient of something at `place`. Any: it may be None.

    The engine hands one tensor to several functions where nothing has to be computed between them; on CUDA, a copy
    lies between two devices.
    """
    if not isinstance(grad, torch.Tensor) or place is None:
        return grad
    return put(grad if place_of(grad) in (None, place) else grad.clone(), place)


@answers(torch.autograd.grad)
def _grad(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> tuple[torch.Tensor | None, ...]:
    """A gradient is where its input is, wherever the outputs are (torch/autograd/__init__.py, grad)."""
    grads: Any = func(*args, **kwargs)
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    return tuple(gradient_at(grad, place_of(each)) for grad, each in zip(grads, inputs, strict=True))


def _apply_with_places() -> Any:
    """An input that a Function returns as it is comes back as a new view, unmarked (custom_function.cpp)."""
    original = inspect.getattr_static(torch.autograd.Function, "apply")  # in C or in Python, by torch version

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = original.__get__(None, cls)(*args, **kwargs)
        place = common_place(tensors_in(args))
        if place is not None:
            put_missing(result, place)
        _remember_places(result)
        return result

    return apply


def _remember_places(result: Any) -> None:
    outputs = result if isinstance(result, tuple) else (result,)
    places = [place_of(output) if isinstance(output, torch.Tensor) else None for output in outputs]
    for output in outputs:
        node: Any = output.grad_fn if isinstance(output, torch.Tensor) else None
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            setattr(node, _PLACES, places)
            return


def _with_modes(mode: VirtualDevices, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the script that torch calls while a mode is off."""

    @wraps(function)
    def reentrant(*args: Any, **kwargs: Any) -> Any:
        with present(mode):
            return function(*args, **kwargs)

    return reentrant


@contextmanager
def present(mode: VirtualDevices) -> Iterator[None]:
    """The modes that are off right now are on, as long as this lasts."""
    there = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        for each in mode.modes:
            if each not in there:
                stack.enter_context(each)
        yield


def _shape_and_dtype(tensor: torch.Tensor) -> dict[str, Any]:
    """What a checkpoint compares when it runs layers again: a saved tensor is not marked, and knows no place."""
    return {"shape": tensor.shape, "dtype": tensor.dtype}


@answers(torch.Tensor.register_hook)
def _register_hook(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """The gradient that a hook is given is where the tensor is."""
    tensor, hook = args
    place = place_of(tensor)
    return func(tensor, hook if place is None else lambda grad: hook(gradient_at(grad, place)))


# ---- functions without an override


def _put_where_the_first_is(function: Function, *args: Any, **kwargs: Any) -> Any:
    return put(function(*args, **kwargs), place_of(args[0]) if args else None)


def _follow_transforms(taps: Taps) -> None:
    """torch.func.grad, vmap, jacrev and the others; modules of torch have names of their own for these functions."""
    functorch = torch._C._functorch
    modules = [module for name, module in sys.modules.items() if name.startswith("torch._functorch.")]
    for name in filter(partial(hasattr, functorch), _WRAPPERS.split()):
        original = getattr(functorch, name)
        taps.around(name, _put_where_the_first_is, functorch)
        for module in modules:
            for own_name in [key for key, value in vars(module).items() if value is original]:
                taps.set(module, own_name, getattr(functorch, name))


@answers(custom_function_call)
def _custom_function(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """An autograd.Function under a transform is called by an operator; its forward needs the modes (torch/_ops.py)."""
    keys: Any = torch._ops._compute_keyset(args, kwargs, func.non_fallthrough_keys)  # type: ignore[no-untyped-call]
    with present(mode):
        return func.dispatch(keys.highestPriorityTypeId(), *args, **kwargs)


def _follow_scripts(taps: Taps, mode: VirtualDevices) -> None:
    """A script draws from the stream of the device that it runs on. What torch.jit.load reads lies on the CPU."""

    def on_device(call: Function, script: Any, /, *args: Any, **kwargs: Any) -> Any:
        place = common_place(tensors_in((*args, *kwargs.values())))
        if place is None or place < 0:
            return put_missing(call(script, *args, **kwargs), place)
        return put_missing(mode.streams.draw(place, call, (script, *args), kwargs), place)

    def load_script(load: Function, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        place = None if map_location is None else mode.machine.place(map_location)
        script = load(f, map_location if place is None else "cpu", *args, **kwargs)
        put([*script.parameters(), *script.buffers()], place)
        return script

    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        taps.around("__call__", on_device, kind)
    taps.around("load", load_script, torch.jit, torch.jit._serialization)


def _without_modes(function: Function, *args: Any, **kwargs: Any) -> Any:
    """torch.export traces with fake tensors: fake ones of the CPU, since one of CUDA would ask for the driver."""
    with torch._C.DisableTorchFunction():
        return function(*args, **kwargs)
