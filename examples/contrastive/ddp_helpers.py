"""What scripts need that dp2ddp converted (edition ef5dbd1e): yours now, it needs torch alone."""

import atexit
import gc
import multiprocessing
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.data import DataLoader


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


class GatherRows(torch.autograd.Function):
    """A rank's rows to the rows of all ranks, in rank order.

    Every rank computes the loss of the whole batch: the gradient of its rows is its part of DataParallel's sum, and
    DistributedDataParallel's average wants world_size times as much. Where a parameter gets None, that makes it zeros.
    """

    @staticmethod
    def forward(ctx: Any, model: Any, rows: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        counts = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([len(rows)]))
        ctx.counts, ctx.others = [int(count) for count in counts], [None for _ in parameters]
        ctx.model = model  # backward needs its reducer, even if nobody else holds the model
        padded = rows.new_zeros(max(ctx.counts), *rows.shape[1:])  # all_gather wants equal shapes
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, ctx.counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, gradient.split(ctx.counts)[dist.get_rank()] * dist.get_world_size(), *ctx.others


class WholeBatchDDP(DistributedDataParallel):
    """DistributedDataParallel that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r of the batch (a rank without rows computes two, and keeps nothing of them). Losses and
    metrics see all rows, on every rank. Buffers are rank 0's, as DataParallel keeps those of its first replica.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module.cuda() if torch.cuda.is_available() else module)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        world, rank = dist.get_world_size(), dist.get_rank()
        has_rows = rank == 0 or bool(inputs or kwargs)  # without arguments, DataParallel runs on one device

        def take_rows(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal has_rows
            if tensor.requires_grad and torch.is_grad_enabled() and world > 1:
                raise ValueError("an input needs a gradient: only dp2ddp's lean helpers can give it one")
            chunks = tensor.chunk(world)
            has_rows = has_rows and rank < len(chunks)
            return (chunks[rank] if rank < len(chunks) else tensor[:2]).to(self.device, copy=True)

        def gather_rows(output: torch.Tensor) -> Any:
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            parameters = [p for p in self.module.parameters() if p.requires_grad and rows.requires_grad]
            return GatherRows.apply(self, rows if has_rows else rows[:0], *parameters)

        inputs, kwargs = tree_map_only(torch.Tensor, take_rows, (inputs, kwargs))
        if world == 1:
            return self.module(*inputs, **kwargs)
        return tree_map_only(torch.Tensor, gather_rows, self.run_module(has_rows, *inputs, **kwargs))

    def run_module(self, has_rows: bool, *inputs: Any, **kwargs: Any) -> Any:
        return super().forward(*inputs, **kwargs)

    def _sync_module_buffers(self, authoritative_rank: int) -> None:
        self.modules_buffers = [b.data for b in self.modules_buffers]  # unseen by backward, as in torch 2.15
        super()._sync_module_buffers(authoritative_rank)


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


class Rank0Loader(DataLoader[Any]):
    """A DataLoader that rank 0 alone iterates, with its workers and its random numbers; all ranks get its batches."""

    def __iter__(self) -> Any:
        batches = super().__iter__() if dist.get_rank() == 0 else iter(())
        share_random_states()
        return self.hand_out(batches)

    def hand_out(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Rank 0's batches, on every rank."""
        while batch := share_batch(list(islice(batches, 1))):
            yield batch[0]


def share_batch(batch: Any) -> Any:
    """Rank 0's batch and its random numbers, on every rank."""

    def outline(leaf: Any) -> Any:
        return leaf.to("meta") if is_slow_to_pickle(leaf) else leaf

    def make_room(leaf: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(leaf, device="cpu") if leaf.is_meta else leaf

    sent = share_random_states(save_views(batch) if may_hold_views(batch) else tree_map(outline, batch))
    if isinstance(sent, bytes):
        return batch if dist.get_rank() == 0 else torch.load(BytesIO(sent), weights_only=False)
    received = batch if dist.get_rank() == 0 else tree_map_only(torch.Tensor, make_room, sent)
    for leaf, outlined in zip(tree_leaves(received), tree_leaves(sent), strict=True):
        if is_slow_to_pickle(leaf) and outlined.is_meta:
            dist.broadcast(leaf.view(-1).view(torch.uint8), 0)  # gloo does not know all types of numbers
    return received


def may_hold_views(batch: Any) -> bool:
    """Whether two tensors may be views of the same memory: what changes one on rank 0 changes the other."""
    leaves = tree_leaves(batch)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]
    others = [
        leaf for leaf in leaves if not isinstance(leaf, (torch.Tensor, str, bytes, int, float, type(None)))
    ]
    return bool(others) or len({leaf.untyped_storage().data_ptr() for leaf in tensors}) < len(tensors)


def save_views(batch: Any) -> bytes:
    """A batch as torch.save writes it, whose views are views of the same memory again; pickle makes copies."""
    torch.save(batch, file := BytesIO())
    return file.getvalue()


def is_slow_to_pickle(leaf: Any) -> bool:
    """Whether it is a plain tensor that would take long to pickle."""
    plain = type(leaf) is torch.Tensor and leaf.layout == torch.strided and leaf.device.type == "cpu"
    return plain and leaf.is_contiguous() and not leaf.requires_grad and leaf.nbytes > 2**16
