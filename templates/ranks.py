"""One process of several: joining, and ending."""

import atexit
import gc
import multiprocessing
import os
import sys
import threading
import traceback
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist

from .broadcast import Rank, tell_all
from .streams import begin_device_stream, host_streams, set_host_streams


def init_distributed() -> None:
    """Become one rank of the run that torchrun started; without torchrun, the only one.

    Rank r uses cuda:r. All ranks begin with rank 0's random numbers, so they shuffle and initialize alike, and only
    rank 0 prints.
    """
    if multiprocessing.current_process().name != "MainProcess" or dist.distributed_c10d.is_initialized():
        return  # a worker of a DataLoader that imports the script; a notebook that runs this once more
    backend, timeout = "gloo", timedelta(days=1)  # on the host, where rank 0 may prepare data for hours
    if torch.cuda.is_available():
        devices = torch.cuda.device_count()
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % devices)
        torch.serialization.register_package(0, lambda storage: None, load_on_own_device)
        if dist.is_nccl_available() and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) <= devices:
            backend = "nccl"  # which wants a device for each rank
        if len({*map(torch.cuda.get_device_name, range(devices))}) > 1:
            sys.stderr.write("GPUs of different kinds draw different large tensors: draw those on the CPU\n")
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout if backend == "gloo" else timedelta(hours=2))
        Rank.host = dist.new_group(backend="gloo", timeout=timeout) if backend == "nccl" else None
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
        if torch.cuda.device_count() > 1:
            sys.stderr.write("one process trains on one GPU: start it by torchrun\n")
    Rank.process = os.getpid()
    atexit.register(end_distributed)
    sys.excepthook = show_error
    if dist.get_rank() > 0:
        nowhere = open(os.devnull, "w", encoding="utf-8", errors="ignore")  # noqa: SIM115
        vars(sys).update(stdout=nowhere, stderr=nowhere, __stdout__=nowhere)
    set_host_streams(tell_all(host_streams()))
    if torch.cuda.is_available():  # without a seed, each device begins at one of its own
        begin_device_stream()
        torch.cuda.set_rng_state(tell_all(torch.cuda.get_rng_state()))
    # libraries that ask whether there are ranks hear what they heard before: no
    variables = "RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE TORCHELASTIC_RUN_ID"
    for name in (*variables.split(), "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    dist.is_initialized = lambda: False


def join_ranks() -> None:
    """Become one rank of the run that torchrun started, for a library that trains by DistributedDataParallel itself.

    It sees the ranks. All of them begin with rank 0's random numbers, and only rank 0 prints. Without torchrun nothing
    changes.
    """
    if "RANK" in os.environ:
        variables, is_initialized = dict(os.environ), dist.is_initialized
        init_distributed()
        os.environ.update(variables)
        dist.is_initialized = is_initialized


def have_one_hash_seed() -> None:
    """Start this rank anew: all ranks have the same hashes of strings, so walk over their sets in one order."""
    if "RANK" not in os.environ or os.environ.get("PYTHONHASHSEED", "random") != "random":
        return
    os.environ["PYTHONHASHSEED"] = "0"
    started = sys.modules["__main__"].__spec__  # by python -m
    words = ["-m", started.name] if started else sys.argv[:1]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-u", *words, *sys.argv[1:]])


def own_rank() -> int:
    return dist.get_rank() if Rank.process else int(os.environ.get("RANK", 0))


def count_ranks() -> int:
    """How many ranks there are: as many as there were devices."""
    return dist.get_world_size() if Rank.process else 1


def together() -> bool:
    """Whether the other ranks do the same now: not in workers and threads, and not while rank 0 is alone."""
    in_main = threading.current_thread() is threading.main_thread()
    is_rank = in_main and not Rank.is_alone and Rank.process == os.getpid()
    if is_rank and Rank.before_meeting:
        Rank.before_meeting()
    return is_rank


@contextmanager
def ranks_apart() -> Iterator[None]:
    """A block in which ranks do not wait for each other."""
    before, Rank.is_alone = Rank.is_alone, True
    try:
        yield
    finally:
        Rank.is_alone = before


def show_error(*error: Any) -> None:
    """sys.excepthook of every rank. Its end must not wait for the other ranks: torchrun ends them."""
    traceback.print_exception(*error, file=sys.__stderr__)
    atexit.unregister(end_distributed)


def end_distributed() -> None:
    if Rank.process == os.getpid():
        gc.collect()
        Rank.process = 0
        # Python flushes files later: what is rank 0's alone stays so
        os.environ["RANK"] = str(dist.get_rank())
        dist.destroy_process_group()


def load_on_own_device(storage: Any, location: str) -> Any:
    """For torch.load: what was saved on any GPU comes to this rank's."""
    return storage.cuda(torch.cuda.current_device()) if location.startswith("cuda") else None


def own_device(device: Any, index: Any = None) -> Any:
    """The rank's device, where a script names one by its number."""
    is_number = isinstance(device, int) and not isinstance(device, bool)
    if is_number or isinstance(device, (str, torch.device)) and str(device).startswith("cuda"):
        return torch.device("cuda")
    return torch.device(device) if isinstance(device, str) else device


def numbered_device(device: Any) -> torch.device:
    """A device with its number, as tensors have it: to be compared with theirs."""
    return torch.zeros(0, device=device).device
