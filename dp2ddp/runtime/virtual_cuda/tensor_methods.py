"""What a tensor says of its place, and how it gets to another one."""

from __future__ import annotations

from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda.function_mode import Args, Keywords, VirtualDevices, answers
from dp2ddp.runtime.virtual_cuda.places import (
    HOST,
    PINNED,
    PLACE,
    common_place,
    device_at,
    is_on_device,
    place_of,
    put,
    tensors_in,
)

# Any throughout: handlers get the arguments of a torch function as they were given.
_Tensor = torch.Tensor
_properties: Any = torch.Tensor  # the stub says what a property gives


# ---- what a tensor says


def _place(mode: VirtualDevices, tensor: torch.Tensor) -> int:
    known = place_of(tensor)
    return mode.machine.place_of_unknown if known is None else known


@answers(_properties.device.__get__)
def _device(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.device:
    where = _place(mode, args[0])
    # the real one on the CPU side: it may be meta
    return torch.device("cuda", where) if where >= 0 else func(*args)


answers(_properties.is_cuda.__get__)(lambda mode, func, args, kwargs: _place(mode, args[0]) >= 0)
answers(_properties.is_cpu.__get__)(
    lambda mode, func, args, kwargs: _place(mode, args[0]) < 0 and func(*args)
)
answers(_Tensor.get_device)(lambda mode, func, args, kwargs: getattr(args[0], PLACE, HOST))  # torch's -1, too
answers(_Tensor.is_pinned)(lambda mode, func, args, kwargs: getattr(args[0], PINNED, False))


@answers(torch.device)
def _device_of_number(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.device:
    """torch.device(0): a wheel without CUDA cannot tell which accelerator 0 is."""
    if len(args) == 1 and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    made: torch.device = func(*args, **kwargs)
    return made


@answers(_properties.grad.__get__)
def _get_grad(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor | None:
    """The engine makes gradients without a mark; a gradient is where its tensor is."""
    grad: torch.Tensor | None = func(*args)
    return None if grad is None else put(grad, place_of(args[0]))


@answers(_properties.data.__set__)
def _set_data(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> None:
    func(*args)
    tensor, value = args
    put(tensor, place_of(value))


@answers(_Tensor.pin_memory)
def _pin_memory(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    """A copy, as in torch, so that writing to it does not reach the original."""
    tensor: torch.Tensor = args[0]
    if is_on_device(tensor):
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    if getattr(tensor, PINNED, False):
        return tensor
    pinned = put(tensor.clone(), place_of(tensor))
    setattr(pinned, PINNED, True)
    return pinned


@answers(_Tensor.numpy, _Tensor.__array__)
def _to_numpy(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    if is_on_device(args[0]) and not kwargs.get("force", False):
        # torch/csrc/utils/tensor_numpy.cpp
        raise TypeError(
            f"can't convert {device_at(place_of(args[0]))} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


# Python functions whose body must see the places too; while a mode answers it is off.


@answers(_Tensor.__repr__)
def _show(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> str:
    with mode:
        text: str = torch._tensor_str._str(*args, **kwargs)  # type: ignore[no-untyped-call]
        return text


@answers(_Tensor.__format__)
def _write(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> str:
    tensor, specification = args
    if tensor.dim() == 0 and type(tensor) is _Tensor:  # a number, as in Tensor.__format__
        return format(tensor.item(), specification)
    with mode:
        return object.__format__(tensor, specification)


# ---- what is made of several tensors


@answers(torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence)
def _pack_padded_sequence(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """The data stay where they were; lengths and batch sizes are always on the CPU (PackPadSequence.cpp)."""
    data, lengths = func(*args, **kwargs)
    return put(data, place_of(args[0])), put(lengths, HOST)


_OF_PARTS = (
    torch.sparse_coo_tensor, torch.sparse_compressed_tensor, torch.sparse_csr_tensor, torch.sparse_csc_tensor,
    torch.sparse_bsr_tensor, torch.sparse_bsc_tensor,
)  # fmt: skip


@answers(*_OF_PARTS)
def _made_of_parts(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """Without `device=`, a sparse tensor is where its parts are (torch/csrc/utils/tensor_new.cpp)."""
    place = common_place(tensors_in(args) + tensors_in(kwargs.values()))
    if kwargs.get("device") is not None or place is None:
        return mode.run(func, args, kwargs)
    return put(func(*args, **kwargs), place)


_FOREACH = (getattr(torch, name) for name in dir(torch) if name.startswith("_foreach_"))


@answers(*_FOREACH, torch.atleast_1d, torch.atleast_2d, torch.atleast_3d, torch.broadcast_tensors)
def _one_by_one(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """Functions of a list of tensors that may be apart: each result is where its tensor is."""
    results = func(*args, **kwargs)
    given = args[0] if args and isinstance(args[0], (tuple, list)) else args
    if not isinstance(results, (tuple, list)):
        return put(results, place_of(given[0])) if given else results
    for result, tensor in zip(results, given, strict=False):
        put(result, place_of(tensor))
    return results


# ---- how it gets to another place: a copy, as in torch, never an alias; the same object if it is there already


def move(tensor: _Tensor, place: int | None, dtype: Any = None, copy: bool = False, **more: Any) -> _Tensor:
    """`tensor` at `place` (None: where it is) as `dtype`; more: memory_format of Tensor.to."""
    have = place_of(tensor)
    stays = place is None or place == have or (place == HOST and have is None)
    moved = _Tensor.to(tensor, dtype or tensor.dtype, copy=copy or not stays, **more)
    if moved is tensor:
        return tensor
    return put(moved, have if place is None else place)


@answers(_Tensor.to)
def _to(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    tensor, target = args[0], args[1:]
    other = target[0] if target else kwargs.get("other", kwargs.get("tensor"))
    if isinstance(other, _Tensor):
        copy = kwargs.get("copy", False) or (len(target) > 2 and target[2])
        return move(tensor, place_of(other), other.dtype, bool(copy))
    keywords = {name: value for name, value in kwargs.items() if name != "copy"}
    # Any: the stub says that all four are always there
    parsed: Any = torch._C._nn._parse_to(*target, **keywords)
    device, dtype, _, memory_format = parsed
    place = None if device is None else mode.machine.place(device)
    if device is not None and place is None:  # meta: no place of ours
        return func(*args, **kwargs)  # type: ignore[no-any-return]
    # Tensor.to(dtype, non_blocking, copy) and Tensor.to(device, dtype, non_blocking, copy)
    by_position = target[2 if target and isinstance(target[0], torch.dtype) else 3 :]
    more = {} if memory_format is None else {"memory_format": memory_format}
    return move(tensor, place, dtype, bool(kwargs.get("copy", False) or any(by_position)), **more)


@answers(_Tensor.cuda)
def _cuda(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    more = {name: value for name, value in kwargs.items() if name == "memory_format"}
    return move(args[0], mode.machine.index(device), **more)


@answers(_Tensor.cpu)
def _cpu(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    return move(args[0], HOST, **kwargs)


@answers(_Tensor.type)
def _type(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """Tensor.type(): its name; Tensor.type(dtype): cast; Tensor.type("torch.cuda.FloatTensor"): cast and move."""
    target: Any = args[1] if len(args) > 1 else kwargs.get("dtype")
    if target is None:
        name: str = func(args[0])
        return name.replace("torch.", "torch.cuda.", 1) if is_on_device(args[0]) else name
    if isinstance(target, torch.dtype):
        return move(args[0], None, target)
    name = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
    if name == "torch.Tensor":  # what type(x) is
        return move(args[0], mode.machine.default_place, torch.get_default_dtype())
    place = mode.machine.current if name.startswith("torch.cuda.") else HOST
    if place != HOST and is_on_device(args[0]):
        place = place_of(args[0]) or 0
    return move(args[0], place, dtype_called(name) if isinstance(target, str) else target.dtype)


@answers(_Tensor.type_as)
def _type_as(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    other = args[1] if len(args) > 1 else kwargs["other"]
    return move(args[0], place_of(other), other.dtype)


@answers(torch._C._nn._parse_to)
def _parse_to(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> Any:
    """nn.Module.to(0): a wheel without CUDA cannot tell which accelerator 0 is."""
    if args and isinstance(args[0], int) and not isinstance(args[0], bool):
        args = (torch.device("cuda", args[0]), *args[1:])
    return func(*args, **kwargs)


@answers(torch.as_tensor, torch.asarray)
def _as_tensor(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    """torch.as_tensor: an alias on the CPU, a copy on a device."""
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    device = kwargs.get("device")
    if not isinstance(data, _Tensor):
        made: torch.Tensor = mode.run(func, args, kwargs)
        return made
    dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
    place = None if device is None else mode.machine.place(device)
    return move(data, place, dtype, bool(kwargs.get("copy")))


@answers(torch.tensor)
def _tensor(mode: VirtualDevices, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    """torch.tensor(data): on data's device if it is a tensor. No look into long lists of numbers."""
    place, cpu = mode.requested_place(func, kwargs)
    data = args[0] if args else kwargs.get("data")
    if isinstance(data, _Tensor) and kwargs.get("device") is None:
        place = place_of(data)
    made: torch.Tensor = func(*args, **cpu)
    if kwargs.get("pin_memory"):
        setattr(made, PINNED, True)
    return put(made, place)


def dtype_called(name: str) -> torch.dtype:
    """The dtype of a legacy type name such as torch.cuda.FloatTensor."""
    return LEGACY_DTYPES[name.rpartition(".")[2]]


LEGACY_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
