"""The mode that makes a thread believe in CUDA devices: it sees every call of a torch function, does it on the CPU, and
marks the results with the place where they would be.

Tensors at different places are torch's own errors. Only functions that are known to need all their tensors at one place
are checked: a false alarm would stop a script that runs on real devices, a missed one only hides an error that the real
devices will show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dp2ddp.runtime.virtual_cuda.places import (
    HOST,
    PINNED,
    PLACE,
    Machine,
    common_place,
    device_at,
    has_dimensions,
    place_of,
    put,
    tensors_in,
)
from dp2ddp.runtime.virtual_cuda.random_streams import RandomStreams, drawing_functions, functions_called
from dp2ddp.taps import Function, Taps

_NAMES = """
    add sub subtract mul multiply div divide true_divide rsub pow fmod remainder atan2 maximum minimum
    fmax fmin lerp addcmul addcdiv eq ne lt le gt ge logical_and logical_or logical_xor where dist mm
    bmm matmul mv dot addmm addmv addbmm baddbmm einsum cat concat stack hstack vstack kron outer cdist
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm
    layer_norm group_norm embedding cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss
    kl_div binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity cosine_embedding_loss
    triplet_margin_loss margin_ranking_loss pairwise_distance prelu grid_sample
"""


def _check_all(tensors: Sequence[torch.Tensor]) -> None:
    """Raise what torch raises if tensors with dimensions are at two different known places.

    c10 TensorIterator.cpp and ATen/core/op_registration/adaption.cpp.
    """
    places = list(dict.fromkeys(place for place in map(_place_that_counts, tensors) if place is not None))
    if len(places) > 1:
        first, second = sorted(places[:2], key=HOST.__eq__)  # torch names the CUDA device first
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{device_at(first)} and {device_at(second)}!"
        )


def _check_index(tensors: Sequence[torch.Tensor]) -> None:
    """aten/src/ATen/native/TensorAdvancedIndexing.cpp: an index on the CPU goes with any tensor."""
    place = place_of(tensors[0])
    for index in tensors[1:]:
        where = _place_that_counts(index)
        if place is not None and where is not None and where not in (place, HOST):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({device_at(place)})"
            )


def _place_that_counts(tensor: torch.Tensor) -> int | None:
    place = place_of(tensor)
    return place if place is not None and has_dimensions(tensor) else None


_STRICT = frozenset(functions_called(_NAMES.split(), "{}", "{}_", "__{}__", "__r{}__", "__i{}__"))
_GETITEM = frozenset({torch.Tensor.__getitem__})


# Any throughout: arguments and results of whatever torch function was called.
Args = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[[Any, Function, Args, Keywords], Any]
"""Answers in the place of a function: called with the mode, the function, and what that is called with."""
_HANDLERS: dict[Function, Handler] = {}

_Tensor = torch.Tensor
_NO_KEYWORDS: Keywords = {}


def answers(*functions: Function) -> Callable[[Handler], Handler]:
    """The handler that this decorates answers for these functions."""

    def add(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return add


class VirtualDevices(TorchFunctionMode):
    """Entered in every thread of the process (taps.in_all_threads): the stack of modes is per thread."""

    def __init__(self, machine: Machine, streams: RandomStreams, taps: Taps) -> None:
        """`taps`: what was replaced beside it."""
        super().__init__()
        self.machine, self.streams, self.taps = machine, streams, taps
        self.modes: list[TorchFunctionMode] = [self]  # of the stage, the lowest first
        self._drawing = drawing_functions()
        # torch's own list of functions that make a tensor of no tensor: without `device=`, on the default device
        self._factories = frozenset(torch.utils._device._device_constructors())
        self._handlers = {**dict.fromkeys(placeless_functions(), _as_it_is), **_HANDLERS}

    def __torch_function__(
        self, func: Function, types: Any, args: Args = (), kwargs: Keywords | None = None
    ) -> Any:
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs or _NO_KEYWORDS)
        return self.run(func, args, kwargs or _NO_KEYWORDS)

    def run(self, func: Function, args: Args, kwargs: Keywords) -> Any:
        """Do a function that is the same on every device, and mark its results."""
        pinned = bool(kwargs) and kwargs.get("pin_memory")
        place, kwargs = self.requested_place(func, kwargs)
        inputs = _place_of_inputs(func, args, kwargs)
        if place is None:
            place = inputs
        if place is not None and place >= 0 and func in self._drawing and not _has_generator(args, kwargs):
            result = self.streams.draw(place, func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        if pinned and isinstance(result, _Tensor):
            setattr(result, PINNED, True)
        if place is None or (args and result is args[0]):
            return result
        return put(result, place)

    def requested_place(self, func: Function, kwargs: Keywords) -> tuple[int | None, Keywords]:
        """The place that `device=` asks for, or that a factory has by default, and the arguments for the CPU."""
        device = kwargs.get("device") if kwargs else None
        if device is not None:
            place = self.machine.place(device)
        elif func in self._factories:
            place = self.machine.default_place
        else:
            return None, kwargs
        if place is None:  # meta and the like: nothing of ours
            return None, kwargs
        cpu = dict(kwargs, device="cpu")
        cpu.pop("pin_memory", None)  # needs a driver
        return place, cpu


def _as_it_is(mode: VirtualDevices, func: Function, args: Args, kwargs: Keywords) -> Any:
    return func(*args, **kwargs)


def _place_of_inputs(func: Function, args: Args, kwargs: Keywords) -> int | None:
    """One pass for the usual case (all at one place); the exact rule only when places differ."""
    common = None
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, _Tensor):
            tensors = [value]
        elif isinstance(value, (tuple, list)):
            tensors = tensors_in(value)
        else:
            continue
        for tensor in tensors:
            place = getattr(tensor, PLACE, None)
            if place is None or place == common:
                continue
            if common is not None:
                every = tensors_in((*args, *kwargs.values()))
                if func in _GETITEM:
                    _check_index(every)
                elif func in _STRICT:
                    _check_all(every)
                return common_place(every)
            common = place
    return common


def _has_generator(args: Args, kwargs: Keywords) -> bool:
    """An explicit generator is used as it is: it is the CPU's anyway, whatever device it says."""
    return any(isinstance(value, torch._C.Generator) for value in (*args, kwargs.get("generator")))


def placeless_functions() -> Iterable[Function]:
    """Often called functions of a tensor whose answer is no other tensor; only for speed."""
    for name in _PLACELESS_PROPERTIES.split():
        yield getattr(torch.Tensor, name).__get__
    for name in _PLACELESS_METHODS.split():
        yield getattr(torch.Tensor, name)
    yield from (torch.is_floating_point, torch.is_complex, torch._C._set_grad_enabled)


_PLACELESS_PROPERTIES = "shape dtype requires_grad ndim layout is_leaf grad_fn _version is_sparse is_meta"
_PLACELESS_METHODS = """
    size dim numel nelement stride is_contiguous item tolist is_floating_point is_complex data_ptr
    storage_offset element_size __len__ __bool__ __int__ __float__ __index__ ndimension requires_grad_
    is_inference is_signed untyped_storage
"""
