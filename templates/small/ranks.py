"""One process of several: joining, ending, and what all ranks are told."""

import atexit
import gc
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .broadcast import tell_all
from .streams import ReplicaStream, host_streams, set_host_streams, share_device_stream

LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
            "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")  # fmt: skip
apart = False  # inside rank0_first: ranks are not together, so nobody waits
rank_process = 0  # the process id of the rank; workers of loaders and pools have others


def init_distributed() -> None:
    """Become one rank of the run that torchrun started; without torchrun, the only one. Rank r uses cuda:r."""
    global rank_process
    if multiprocessing.current_process().name != "MainProcess" or has_joined():
        return  # a worker of a DataLoader that imports the script; a notebook that runs it once more
    torch.serialization.register_package(0, lambda storage: None, to_own_device)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if "RANK" not in os.environ:
        dist.init_process_group("gloo", init_method="tcp://localhost:0", rank=0, world_size=1)
    else:
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=timedelta(hours=2))
    rank_process = os.getpid()
    atexit.register(end_distributed)
    set_host_streams(tell_all(host_streams()))
    if torch.cuda.is_available():  # without a seed, each device begins at one of its own
        ReplicaStream.begin(torch.cuda.get_rng_state())
        share_device_stream()
    sys.excepthook = show_error
    if dist.get_rank():
        sys.stdout = sys.stderr = sys.__stdout__ = open(os.devnull, "w", encoding="utf-8", errors="ignore")
    for name in LAUNCHER:  # who asks whether there are ranks is told what it was told under DataParallel: no
        os.environ.pop(name, None)
    dist.is_initialized = lambda: False


def has_joined() -> bool:
    return dist.distributed_c10d.is_initialized()


def own_rank() -> int:
    return dist.get_rank() if has_joined() else 0


def together() -> bool:
    """Whether the other ranks do the same now: not in workers, in threads, and while rank 0 is alone."""
    return not apart and rank_process == os.getpid() and threading.current_thread() is threading.main_thread()


def show_error(*error: Any) -> None:
    """sys.excepthook of every rank. NCCL's end would wait for the other ranks; torchrun ends them."""
    traceback.print_exception(*error, file=sys.__stderr__)
    atexit.unregister(end_distributed)


def end_distributed() -> None:
    if rank_process == os.getpid():
        gc.collect()
        dist.destroy_process_group()


def to_own_device(storage: Any, location: str) -> Any:
    """A map_location for torch.load: what was saved on any GPU comes to this rank's."""
    on_gpu = location.startswith("cuda") and torch.cuda.is_available()
    return storage.cuda(torch.cuda.current_device()) if on_gpu else None


def count_ranks() -> int:
    return dist.get_world_size()


def own_device(device: Any, index: Any = None) -> Any:
    """The rank's device, where a script names one by its number."""
    if (
        isinstance(device, (int, str, torch.device))
        and not isinstance(device, bool)
        and (isinstance(device, int) or str(device).startswith("cuda"))
    ):
        return torch.device("cuda")
    return torch.device(device) if isinstance(device, str) else device


@contextmanager
def ranks_apart() -> Iterator[None]:
    global apart
    before, apart = apart, True
    try:
        yield
    finally:
        apart = before
