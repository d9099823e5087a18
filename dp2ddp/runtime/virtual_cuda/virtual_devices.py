"""N virtual CUDA devices on the CPU, so that unchanged CUDA scripts run where there is no GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch._utils

from dp2ddp.runtime.call_arguments import tensors_in
from dp2ddp.runtime.virtual_cuda.autograd_places import follow_autograd, keep_modes_in_backward
from dp2ddp.runtime.virtual_cuda.compiling import skip_compiling
from dp2ddp.runtime.virtual_cuda.constructors import fill_unwritten, install_legacy_types
from dp2ddp.runtime.virtual_cuda.cuda_api import install_cuda_api
from dp2ddp.runtime.virtual_cuda.cuda_kernels import add_cuda_kernels, add_sync_batch_norm
from dp2ddp.runtime.virtual_cuda.distributed import install_distributed
from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import PINNED, PLACE, Machine, common_place, put
from dp2ddp.runtime.virtual_cuda.precision import install_double, map_autocast_to_cpu
from dp2ddp.runtime.virtual_cuda.random_streams import RandomStreams
from dp2ddp.runtime.virtual_cuda.tensor_methods import add_tensor_methods
from dp2ddp.runtime.virtual_cuda.unseen import follow_unseen
from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import install_data_parallel
from dp2ddp.runtime.virtual_cuda.virtual_files import follow_loading, follow_saving
from dp2ddp.taps import Taps, in_all_threads


def install(count: int, dtype: str = "float32") -> VirtualDevices:
    """Make this process believe that it has `count` CUDA devices, until it ends or, in this thread, `taps.undo()`.

    dtype "float64": all floating point numbers of the script are doubles, whatever it asks for.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"a stage is float32 or float64, not {dtype}")
    machine, taps = Machine(count), Taps()
    streams = RandomStreams(count)
    mode = VirtualDevices(machine, streams, taps)
    add_tensor_methods(mode)
    add_cuda_kernels(mode)
    add_sync_batch_norm(mode)
    follow_autograd(taps, mode)
    keep_places_out_of_files(taps)
    follow_loading(taps, mode, follow_saving(taps))
    install_cuda_api(taps, machine, streams)
    map_autocast_to_cpu(taps)
    skip_compiling(taps)
    install_data_parallel(taps, machine)
    install_distributed(taps, machine)
    install_legacy_types(taps, mode)
    fill_unwritten(mode)
    modes = [mode] if dtype == "float32" else [mode, install_double(taps)]
    keep_modes_in_backward(taps, machine, modes)
    follow_unseen(taps, mode, modes)
    in_all_threads(taps, modes)
    return mode


def keep_places_out_of_files(taps: Taps) -> None:
    """Marks are for this process only; a Parameter made of a marked tensor is where the tensor is."""

    def without_places(original: Any, obj: object) -> object:
        state: object = original(obj)
        if isinstance(obj, torch.Tensor) and isinstance(state, dict):
            return {name: value for name, value in state.items() if name not in (PLACE, PINNED)}
        return state

    def put_there(made: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        put(made, common_place(tensors_in(args)))

    def on_cpu(original: Any, *args: Any, **kwargs: Any) -> Any:
        """A tensor without memory of its own is told where it is: on the CPU, as all are."""
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        return original(*args, **kwargs)

    def variable(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        """torch.autograd.Variable(tensor) of old scripts: an alias."""
        tensor: torch.Tensor = torch._C._LegacyVariableBase.__new__(cls, *args, **kwargs)
        return put(tensor, common_place(tensors_in(args)))

    taps.around("_get_obj_state", without_places, torch._utils)
    taps.after("_make_subclass", put_there, torch.Tensor)
    taps.around("_make_wrapper_subclass", on_cpu, torch.Tensor)
    taps.set(torch.autograd.Variable, "__new__", staticmethod(variable))
