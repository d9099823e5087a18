"""What a tensor says of its place, and how it gets to another one."""

from __future__ import annotations

from typing import Any

import torch

from dp2ddp.runtime.call_arguments import tensors_in
from dp2ddp.runtime.virtual_cuda.function_mode import Handler, VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import (
    HOST,
    PINNED,
    PLACE,
    Machine,
    common_place,
    device_at,
    is_on_device,
    place_of,
    put,
)

# Any throughout: handlers get the arguments of a torch function as they were given.
Args = tuple[Any, ...]
Keywords = dict[str, Any]
_Tensor = torch.Tensor


def add_tensor_methods(mode: VirtualDevices) -> None:
    """Teach the mode the methods and properties of Tensor that have to do with devices."""
    for name, answer in _answers_about_place(mode.machine).items():
        mode.handle([_accessors(name).__get__], answer)
    mode.handle([torch.device], _device_of_number)
    mode.handle([_accessors("data").__set__], _set_data)
    mode.handle([_accessors("grad").__get__], _get_grad)
    mode.handle(
        [_Tensor.get_device], lambda func, args, kwargs: getattr(args[0], PLACE, HOST)
    )  # torch's -1, too
    mode.handle([_Tensor.is_pinned], lambda func, args, kwargs: getattr(args[0], PINNED, False))
    mode.handle([_Tensor.pin_memory], _pin_memory)
    mode.handle([_Tensor.numpy, _Tensor.__array__], _to_numpy)
    mode.handle([torch._VF._pack_padded_sequence], _pack_padded_sequence)
    mode.handle([torch._VF._pad_packed_sequence], _pack_padded_sequence)
    mode.handle([getattr(torch, name) for name in _MADE_OF_PARTS.split()], _made_of_parts(mode))
    one_by_one = [name for name in dir(torch) if name.startswith("_foreach_")]
    mode.handle([getattr(torch, name) for name in (*one_by_one, *_ONE_BY_ONE.split())], _one_by_one)
    _add_movement(mode)
    _add_reentrant(mode)


def _accessors(name: str) -> Any:
    """A property of Tensor; Any: the stub says what the property gives."""
    return getattr(_Tensor, name)


def _add_movement(mode: VirtualDevices) -> None:
    mover = Mover(mode)
    mode.handle([_Tensor.to], mover.to)
    mode.handle([_Tensor.cuda], mover.cuda)
    mode.handle([_Tensor.cpu], mover.cpu)
    mode.handle([_Tensor.type], mover.type)
    mode.handle([_Tensor.type_as], mover.type_as)
    mode.handle([torch._C._nn._parse_to], mover.parse_to)
    mode.handle([torch.as_tensor, torch.asarray], mover.as_tensor)
    mode.handle([torch.tensor], mover.tensor)


def _add_reentrant(mode: VirtualDevices) -> None:
    """Python functions whose body must see the places too; while a mode answers it is off."""

    def show(func: Any, args: Args, kwargs: Keywords) -> str:
        with mode:
            text: str = torch._tensor_str._str(*args, **kwargs)  # type: ignore[no-untyped-call]
            return text

    def write(func: Any, args: Args, kwargs: Keywords) -> str:
        tensor, specification = args
        if tensor.dim() == 0 and type(tensor) is _Tensor:  # a number, as in Tensor.__format__
            return format(tensor.item(), specification)
        with mode:
            return object.__format__(tensor, specification)

    mode.handle([_Tensor.__repr__], show)
    mode.handle([_Tensor.__format__], write)


# ---- what a tensor says


def _answers_about_place(machine: Machine) -> dict[str, Handler]:
    def place(tensor: torch.Tensor) -> int:
        known = place_of(tensor)
        return machine.place_of_unknown if known is None else known

    def device(func: Any, args: Args, kwargs: Keywords) -> torch.device:
        where = place(args[0])
        # the real one on the CPU side: it may be meta
        return torch.device("cuda", where) if where >= 0 else func(*args)

    def is_cuda(func: Any, args: Args, kwargs: Keywords) -> bool:
        return place(args[0]) >= 0

    def is_cpu(func: Any, args: Args, kwargs: Keywords) -> bool:
        return place(args[0]) < 0 and bool(func(*args))

    return {"device": device, "is_cuda": is_cuda, "is_cpu": is_cpu}


def _device_of_number(func: Any, args: Args, kwargs: Keywords) -> torch.device:
    """torch.device(0): a wheel without CUDA cannot tell which accelerator 0 is."""
    if len(args) == 1 and isinstance(args[0], int):
        return torch.device("cuda", args[0])
    made: torch.device = func(*args, **kwargs)
    return made


def _get_grad(func: Any, args: Args, kwargs: Keywords) -> torch.Tensor | None:
    """The engine makes gradients without a mark; a gradient is where its tensor is."""
    grad: torch.Tensor | None = func(*args)
    return None if grad is None else put(grad, place_of(args[0]))


def _set_data(func: Any, args: Args, kwargs: Keywords) -> None:
    func(*args)
    tensor, value = args
    put(tensor, place_of(value))


def _pin_memory(func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
    """A copy, as in torch, so that writing to it does not reach the original."""
    tensor: torch.Tensor = args[0]
    if is_on_device(tensor):
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    if getattr(tensor, PINNED, False):
        return tensor
    pinned = put(tensor.clone(), place_of(tensor))
    setattr(pinned, PINNED, True)
    return pinned


def _to_numpy(func: Any, args: Args, kwargs: Keywords) -> Any:
    if is_on_device(args[0]) and not kwargs.get("force", False):
        # torch/csrc/utils/tensor_numpy.cpp
        raise TypeError(
            f"can't convert {device_at(place_of(args[0]))} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


def _pack_padded_sequence(func: Any, args: Args, kwargs: Keywords) -> Any:
    """The data stay where they were; lengths and batch sizes are always on the CPU (PackPadSequence.cpp)."""
    data, lengths = func(*args, **kwargs)
    return put(data, place_of(args[0])), put(lengths, HOST)


# ---- what is made of several tensors


_MADE_OF_PARTS = """
    sparse_coo_tensor sparse_compressed_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
"""


def _made_of_parts(mode: VirtualDevices) -> Handler:
    """Without `device=`, a sparse tensor is where its parts are (torch/csrc/utils/tensor_new.cpp)."""

    def make(func: Any, args: Args, kwargs: Keywords) -> Any:
        place = common_place(tensors_in(args) + tensors_in(kwargs.values()))
        if kwargs.get("device") is not None or place is None:
            return mode.run(func, args, kwargs)
        return put(func(*args, **kwargs), place)

    return make


_ONE_BY_ONE = "atleast_1d atleast_2d atleast_3d broadcast_tensors"


def _one_by_one(func: Any, args: Args, kwargs: Keywords) -> Any:
    """Functions of a list of tensors that may be apart: each result is where its tensor is."""
    results = func(*args, **kwargs)
    given = args[0] if args and isinstance(args[0], (tuple, list)) else args
    if not isinstance(results, (tuple, list)):
        return put(results, place_of(given[0])) if given else results
    for result, tensor in zip(results, given, strict=False):
        put(result, place_of(tensor))
    return results


# ---- how it gets to another place


class Mover:
    """Copies between places as torch does: never an alias of the original, the same object if it is there
    already.
    """

    def __init__(self, mode: VirtualDevices) -> None:
        self.mode = mode
        self.machine = mode.machine

    def move(
        self, tensor: _Tensor, place: int | None, dtype: Any = None, copy: bool = False, **more: Any
    ) -> _Tensor:
        """`tensor` at `place` (None: where it is) as `dtype`; more: memory_format of Tensor.to."""
        have = place_of(tensor)
        stays = place is None or place == have or (place == HOST and have is None)
        moved = _Tensor.to(tensor, dtype or tensor.dtype, copy=copy or not stays, **more)
        if moved is tensor:
            return tensor
        return put(moved, have if place is None else place)

    def to(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        tensor, target = args[0], args[1:]
        other = target[0] if target else kwargs.get("other", kwargs.get("tensor"))
        if isinstance(other, _Tensor):
            copy = kwargs.get("copy", False) or (len(target) > 2 and target[2])
            return self.move(tensor, place_of(other), other.dtype, bool(copy))
        keywords = {name: value for name, value in kwargs.items() if name != "copy"}
        # Any: the stub says that all four are always there
        parsed: Any = torch._C._nn._parse_to(*target, **keywords)
        device, dtype, _, memory_format = parsed
        place = None if device is None else self.machine.place(device)
        if device is not None and place is None:  # meta: no place of ours
            return func(*args, **kwargs)  # type: ignore[no-any-return]
        copy = kwargs.get("copy", False) or _positional_copy(target)
        more = {} if memory_format is None else {"memory_format": memory_format}
        return self.move(tensor, place, dtype, copy, **more)

    def cuda(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        device = args[1] if len(args) > 1 else kwargs.get("device")
        more = {name: value for name, value in kwargs.items() if name == "memory_format"}
        return self.move(args[0], self.machine.index(device), **more)

    def cpu(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        return self.move(args[0], HOST, **kwargs)

    def type(self, func: Any, args: Args, kwargs: Keywords) -> Any:
        """Tensor.type(): its name; Tensor.type(dtype): cast; Tensor.type("torch.cuda.FloatTensor"): cast
        and move.
        """
        target: Any = args[1] if len(args) > 1 else kwargs.get("dtype")
        if target is None:
            name: str = func(args[0])
            return name.replace("torch.", "torch.cuda.", 1) if is_on_device(args[0]) else name
        if isinstance(target, torch.dtype):
            return self.move(args[0], None, target)
        name = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
        if name == "torch.Tensor":  # what type(x) is
            return self.move(args[0], self.machine.default_place, torch.get_default_dtype())
        place = self.machine.current if name.startswith("torch.cuda.") else HOST
        if place != HOST and is_on_device(args[0]):
            place = place_of(args[0]) or 0
        return self.move(args[0], place, dtype_called(name) if isinstance(target, str) else target.dtype)

    def type_as(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        other = args[1] if len(args) > 1 else kwargs["other"]
        return self.move(args[0], place_of(other), other.dtype)

    def parse_to(self, func: Any, args: Args, kwargs: Keywords) -> Any:
        """nn.Module.to(0): a wheel without CUDA cannot tell which accelerator 0 is."""
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        return func(*args, **kwargs)

    def as_tensor(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        """torch.as_tensor: an alias on the CPU, a copy on a device."""
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        device = kwargs.get("device")
        if not isinstance(data, _Tensor):
            made: torch.Tensor = self.mode.run(func, args, kwargs)
            return made
        dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        place = None if device is None else self.machine.place(device)
        return self.move(data, place, dtype, bool(kwargs.get("copy")))

    def tensor(self, func: Any, args: Args, kwargs: Keywords) -> torch.Tensor:
        """torch.tensor(data): on data's device if it is a tensor. No look into long lists of numbers."""
        place, cpu = self.mode.requested_place(func, kwargs)
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, _Tensor) and kwargs.get("device") is None:
            place = place_of(data)
        made: torch.Tensor = func(*args, **cpu)
        if kwargs.get("pin_memory"):
            setattr(made, PINNED, True)
        return put(made, place)


def _positional_copy(target: Args) -> bool:
    """Tensor.to(device, dtype, non_blocking, copy) and Tensor.to(dtype, non_blocking, copy)."""
    where = 2 if target and isinstance(target[0], torch.dtype) else 3
    return len(target) > where and bool(target[where])


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
