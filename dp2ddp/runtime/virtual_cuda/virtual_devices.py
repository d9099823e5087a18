"""N virtual CUDA devices on the CPU, so that unchanged CUDA scripts run where there is no GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dp2ddp.runtime.virtual_cuda import (
    constructors,
    cuda_kernels,  # noqa: F401  it answers for functions, as others do
    unseen,
    virtual_files,
)
from dp2ddp.runtime.virtual_cuda.cuda_api import install_cuda_api
from dp2ddp.runtime.virtual_cuda.distributed import install_distributed
from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import Machine
from dp2ddp.runtime.virtual_cuda.precision import install_double, map_autocast_to_cpu
from dp2ddp.runtime.virtual_cuda.random_streams import RandomStreams
from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import install_data_parallel
from dp2ddp.taps import Taps, in_all_threads


def install(count: int, dtype: str = "float32") -> VirtualDevices:
    """Make this process believe that it has `count` CUDA devices, until it ends or, in this thread, `taps.undo()`.

    dtype "float64": all floating point numbers of the script are doubles, whatever it asks for.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"a stage is float32 or float64, not {dtype}")
    machine, taps, streams = Machine(count), Taps(), RandomStreams(count)
    mode = VirtualDevices(machine, streams, taps)
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


def skip_compiling(taps: Taps) -> None:
    """Let torch.compile return what it is given.

    The compiler would trace the real CPU tensors and leave out the marks that say where they are; and compiled and
    eager kernels differ in rounding, which would hide behind what is being compared.
    """
    taps.set(torch, "compile", compile_nothing)
    taps.set(torch.nn.Module, "compile", lambda module, *args, **options: None)


def compile_nothing(model: Any = None, **options: Any) -> Any:
    """torch.compile: functions stay as they are, modules get the wrapper that prefixes their keys `_orig_mod.`."""
    if model is None:
        return lambda function: compile_nothing(function, **options)
    if isinstance(model, torch.nn.Module) and not options.get("disable"):
        return _shell()(model, lambda function: function)
    return model


@cache
def _shell() -> Any:
    from torch._dynamo.eval_frame import OptimizedModule

    class Shell(OptimizedModule):
        """torch's own, which DataParallel can replicate: torch's loses the module's parameters in that."""

        def _replicate_for_data_parallel(self) -> Any:
            twin = type(self).__new__(type(self))
            vars(twin).update(vars(self), _modules=dict(self._modules))
            return twin

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "_orig_mod":  # a replica's
                vars(self)["forward"] = value.__call__

    Shell.__name__ = Shell.__qualname__ = "OptimizedModule"
    return Shell
