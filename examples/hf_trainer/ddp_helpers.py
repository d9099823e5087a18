"""What scripts need that dp2ddp converted (edition 7ad638fc): yours now, it needs torch alone."""

import atexit
import gc
import multiprocessing
import os
import pickle
import random
import sys
import traceback
from datetime import timedelta
from typing import Any, List

import torch
import torch.distributed as dist


class Rank:
    """This process among the ranks."""

    host: Any = None  # the group for what lies on the host: gloo's, beside NCCL's for what lies on GPUs
    make_whole: Any = None  # for what rank 0 does alone: outputs that lie in parts on all ranks
    before_forward: Any = None  # shares what is trained outside of the model
    before_meeting: Any = None  # asks whether a backward has failed, in a script that catches errors
    device_stream: Any = None  # random numbers of device r, from which replica r draws on rank r > 0
    is_alone = False  # while rank 0 does something that the others do not
    process = 0  # its number, while there are ranks; workers of loaders and pools have others


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    is_source, message = dist.get_rank() == source, [b"", ""]
    if is_source:
        try:
            message[0] = pickle.dumps(news)
        except Exception as reason:  # raised here alone, it would leave the others waiting
            message[1] = f"rank {source} cannot send this to the other ranks: {reason}"
    dist.broadcast_object_list(message, source, Rank.host)
    if message[1]:
        raise RuntimeError(message[1])
    return news if is_source else pickle.loads(message[0])  # type: ignore[arg-type]


def host_streams() -> List[Any]:
    """The states of Python's, torch's and numpy's random numbers on the host."""
    numpy = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]


def set_host_streams(states: List[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if states[2] and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states[2])


def begin_device_stream() -> None:
    """Replicas draw from streams of their devices from now on; these begin anew when all devices are seeded."""
    seed_all = torch.cuda.manual_seed_all

    def seed_and_begin(seed: int) -> None:  # torch.manual_seed calls it
        seed_all(seed)
        if torch.cuda.is_initialized():  # not in a forked worker
            Rank.device_stream = torch.Generator("cuda").manual_seed(int(seed)).get_state()

    Rank.device_stream, torch.cuda.manual_seed_all = torch.cuda.get_rng_state(), seed_and_begin


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
