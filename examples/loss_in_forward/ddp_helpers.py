"""What scripts need that dp2ddp converted (edition ef5dbd1e): yours now, it needs torch alone."""

import atexit
import gc
import multiprocessing
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a hidden folder beside the file, then moved into place: a kill leaves the old file.

    Only its owner may look into the folder; what a kill leaves there, the next save takes away. The file has its own
    name in it, which torch writes into the archive. Where there is no room for two files, or another file would not
    be the same to others, it is torch.save alone.
    """
    if not hasattr(f, "write") and may_be_replaced(f):
        place, name = os.path.split(os.fspath(f))
        folder = os.path.join(place, f".{name}.unfinished")
        unfinished = os.path.join(folder, name)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.mkdir(folder, 0o700)
            if os.path.exists(f):
                make_alike(unfinished, f)
            torch.save(obj, unfinished, *args, **kwargs)
            with open(unfinished, "rb+") as file:
                os.fsync(file.fileno())  # or a crash of the machine might leave the new name and no content
            os.replace(unfinished, f)
            return
        except (OSError, RuntimeError):  # torch's way to say that the disk is full
            pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    torch.save(obj, f, *args, **kwargs)


def may_be_replaced(f: Any) -> bool:
    """Whether a file may be moved to this path: there is none, or a plain one, of one name, that may be written to."""
    if not os.path.lexists(f):
        return True
    is_plain = os.path.isfile(f) and not os.path.islink(f) and os.stat(f).st_nlink == 1
    return is_plain and os.access(f, os.W_OK)


def make_alike(path: str, old: Any) -> None:
    """An empty file with the owner, the group and the rights of an old one."""
    with open(path, "xb") as file:
        new, kept = os.fstat(file.fileno()), os.stat(old)
    if (new.st_uid, new.st_gid) != (kept.st_uid, kept.st_gid):
        os.chown(path, kept.st_uid, kept.st_gid)
    shutil.copystat(old, path)


def init_distributed(map_location: Any = None) -> None:
    """Become one rank of the run that torchrun started; without torchrun, the only one.

    Rank r uses cuda:r. All begin with rank 0's random states, so that they shuffle and initialise alike. Only rank 0
    prints, but for what ends another rank. map_location is for every torch.load without one.
    """
    is_worker = multiprocessing.current_process().name != "MainProcess"
    if is_worker or ("RANK" not in os.environ and dist.is_initialized()):
        return  # a DataLoader's worker that was spawned, and imports the script; a notebook that runs it once more
    if map_location is not None:
        torch.serialization.register_package(0, lambda storage: None, map_location)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if "RANK" not in os.environ:
        if torch.cuda.device_count() > 1:
            print("only one GPU is used: start with torchrun --nproc-per-node gpu", file=sys.stderr)
        dist.init_process_group("gloo", init_method="tcp://localhost:0", rank=0, world_size=1)
    else:
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=timedelta(hours=2))
    atexit.register(end_distributed)
    share_random_states()
    sys.excepthook = show_error
    if dist.get_rank() > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="ignore")


def show_error(*error: Any) -> None:
    """sys.excepthook of every rank. NCCL's end would wait for the other ranks; torchrun ends them."""
    traceback.print_exception(*error, file=sys.__stderr__)
    if torch.cuda.is_available():
        atexit.unregister(end_distributed)


def end_distributed() -> None:
    """At exit: with gloo, a reducer or a group that outlives Python may abort the process (seen in torch 2.15)."""
    for model in [thing for thing in gc.get_objects() if issubclass(type(thing), DistributedDataParallel)]:
        vars(model).update(reducer=None, logger=None)
    dist.destroy_process_group()
    gc.collect()


def share_random_states(news: Any = None) -> Any:
    """Go on with rank 0's random numbers on all ranks: Python's, torch's on the host, numpy's. Gives rank 0's news."""
    numpy = sys.modules.get("numpy")
    states = [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state(), news]
    dist.broadcast_object_list(states)
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if numpy:
        numpy.random.set_state(states[2])
    return states[3]


@contextmanager
def own_draws(module: torch.nn.Module, has_rows: bool) -> Iterator[None]:
    """Around a forward: the script's random streams stay where they are, so that they are the same on all ranks.

    On a GPU, dropout draws from the device's stream; without one, from one of the module's own. A rank without rows
    draws nothing.
    """
    script_stream, first_seed = torch.get_rng_state(), (torch.initial_seed() + dist.get_rank()) % 2**63
    torch.set_rng_state(vars(module).get("_own_draws", torch.Generator().manual_seed(first_seed).get_state()))
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices, enabled=not has_rows):
            yield
    finally:
        vars(module)["_own_draws"] = torch.get_rng_state()
        torch.set_rng_state(script_stream)


def run_on_rank0(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call a function on rank 0 alone, once all ranks have come here; its end, or its error, is that of all."""

    def run() -> None:
        function(*args, **kwargs)

    ask_rank0(run)


def ask_rank0(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on rank 0 alone; every rank gets its answer, or its error."""
    dist.barrier()
    news: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            news = [function(*args, **kwargs), None]
        except Exception as error:
            news = [None, error]
    dist.broadcast_object_list(news)
    if news[1] is not None:
        raise news[1]
    return news[0]


def save_on_rank0(*args: Any, **kwargs: Any) -> None:
    """torch.save, on rank 0 alone; an interrupted run leaves the old file."""
    run_on_rank0(save_completely, *args, **kwargs)


@contextmanager
def open_on_rank0(path: Any, mode: str = "r", buffering: int = -1, **options: Any) -> Iterator[Any]:
    """The built-in open, for a file that rank 0 writes; all ranks leave the block when it is complete."""
    dist.barrier()
    if mode[0] in "wax" and dist.get_rank() > 0:
        path, mode = os.devnull, mode.replace("x", "w")
    with sharing_errors():
        file = open(path, mode, buffering, **options)  # noqa: SIM115
    with file:
        yield file
        with sharing_errors():
            file.close()


@contextmanager
def sharing_errors() -> Iterator[None]:
    """A block behind which all ranks meet; what fails on rank 0 alone, as on a full disk, is raised on all."""
    error = None
    try:
        yield
    except Exception as raised:
        error = raised
    news = [error]
    dist.broadcast_object_list(news)
    if any_error := error or news[0]:
        raise any_error


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold alike, for the rank's own use; gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return SumOverRanks.apply(*gradients)


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks of what each of them has, in one message for each type of number."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums: dict[int, torch.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[index].reshape(-1) for index in alike])
            dist.all_reduce(flat)
            parts = flat.split([tensors[index].numel() for index in alike])
            sums |= {index: part.view(tensors[index].shape) for index, part in zip(alike, parts, strict=True)}
        return tuple(sums[index] for index in range(len(tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(*gradients)


class TakeRows(torch.autograd.Function):
    """A rank's rows of a tensor that all ranks hold alike; counts are the numbers of rows of each rank."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        ctx.counts = counts
        return whole.split(list(counts))[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinRows.apply(gradient, ctx.counts), None


class JoinRows(torch.autograd.Function):
    """The rows of all ranks, in rank order."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        ctx.counts = counts
        padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return TakeRows.apply(gradient, ctx.counts), None


@contextmanager
def standing_for(module: torch.nn.Module, copies: Mapping[Any, Any]) -> Iterator[None]:
    """A block in which copies stand for a module's parameters.

    torch.func.functional_call would leave a copy in a part that the module has by two names (seen in torch 2.15).
    """
    tables = [(part._parameters, dict(part._parameters)) for part in module.modules()]
    for table, own in tables:
        table.update({name: copies.get(p, p) for name, p in own.items() if p is not None})
    try:
        yield
    finally:
        for table, own in tables:
            table.update(own)


class WholeBatchParallel(torch.nn.Module):
    """A model that takes a whole batch and gives its outputs, as DataParallel does; rank r computes chunk r.

    Losses, metrics and decisions behind the forward see all rows, on every rank. Parameters and buffers are always
    the same on all ranks (buffers are those of rank 0, as DataParallel keeps its first replica's), so that parts of
    the model may be run, looked at or copied besides.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        share_tensors([*module.parameters(), *module.buffers()])  # as DistributedDataParallel does

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        world = dist.get_world_size()
        # without arguments, DataParallel runs on one device
        has_rows = dist.get_rank() == 0 or bool(inputs or kwargs)
        device = next((parameter.device for parameter in self.module.parameters()), None)

        def take_rows(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal has_rows
            size = -(-len(tensor) // world)
            counts = [max(0, min(size, len(tensor) - rank * size)) for rank in range(world)]
            rows = TakeRows.apply(tensor, counts)
            if not counts[dist.get_rank()]:  # a rank without rows runs two, and keeps nothing of them
                has_rows, rows = False, torch.cat([rows, tensor[:2].detach()])
            return rows.to(device or rows.device)

        def join_rows(output: torch.Tensor) -> Any:
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            rows = rows if has_rows else rows[:0]
            counts = [torch.empty(1, dtype=torch.int64) for _ in range(world)]
            dist.all_gather(counts, torch.tensor([len(rows)]))
            return JoinRows.apply(rows, [int(count) for count in counts])

        inputs, kwargs = tree_map_only(torch.Tensor, take_rows, (inputs, kwargs))
        if world == 1:
            return self.module(*inputs, **kwargs)
        trained = [p for p in self.module.parameters() if p.requires_grad and torch.is_grad_enabled()]
        copies = CopyToRanks.apply(*trained) if trained else ()
        with own_draws(self, has_rows), standing_for(self.module, dict(zip(trained, copies, strict=True))):
            outputs = self.module(*inputs, **kwargs)
        if any(module.training for module in self.modules()):  # else no buffer has changed
            share_tensors(list(self.module.buffers()))
        return tree_map_only(torch.Tensor, join_rows, outputs)


def share_tensors(tensors: Sequence[torch.Tensor]) -> None:
    """Give rank 0's numbers to all ranks, in one message for each type of number."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor.data for tensor in tensors if tensor.dtype == dtype]  # autograd may have saved them
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.broadcast(flat, 0)
        for tensor, part in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))
