"""N virtual CUDA devices on the CPU, so that unchanged CUDA scripts run where there is no GPU."""

from __future__ import annotations

from collections import ChainMap

from dp2ddp.runtime.virtual_cuda import (
    autograd_places,
    constructors,
    cuda_kernels,
    tensor_methods,
    unseen,
    virtual_files,
)
from dp2ddp.runtime.virtual_cuda.compiling import skip_compiling
from dp2ddp.runtime.virtual_cuda.cuda_api import install_cuda_api
from dp2ddp.runtime.virtual_cuda.distributed import install_distributed
from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import Machine
from dp2ddp.runtime.virtual_cuda.precision import install_double, map_autocast_to_cpu
from dp2ddp.runtime.virtual_cuda.random_streams import RandomStreams
from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import install_data_parallel
from dp2ddp.taps import Taps, in_all_threads

_ANSWERING = (tensor_methods, cuda_kernels, constructors, autograd_places, unseen, virtual_files)


def install(count: int, dtype: str = "float32") -> VirtualDevices:
    """Make this process believe that it has `count` CUDA devices, until it ends or, in this thread, `taps.undo()`.

    dtype "float64": all floating point numbers of the script are doubles, whatever it asks for.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"a stage is float32 or float64, not {dtype}")
    machine, taps, streams = Machine(count), Taps(), RandomStreams(count)
    mode = VirtualDevices(machine, streams, taps, dict(ChainMap(*(each.HANDLERS for each in _ANSWERING))))
    autograd_places.follow_autograd(taps, mode)
    virtual_files.follow_files(taps, machine)
    install_cuda_api(taps, machine, streams)
    map_autocast_to_cpu(taps)
    skip_compiling(taps)
    install_data_parallel(taps, machine)
    install_distributed(taps, machine)
    constructors.follow_constructors(taps, machine)
    if dtype == "float64":
        mode.modes.append(install_double(taps))
    unseen.follow_unseen(taps, mode)
    in_all_threads(taps, mode.modes)
    return mode
