"""What scripts need that dp2ddp converted (edition 756e662e): yours now, it needs torch alone."""

import atexit
import copy
import copyreg
import gc
import multiprocessing
import os
import pickle
import random
import sys
import threading
import traceback
import weakref
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel


class Rank:
    """This process among the ranks."""

    host: Any = None  # the group for what lies on the host: gloo's, beside NCCL's for what lies on GPUs
    is_alone = False  # while rank 0 does something that the others do not
    # its number; workers of loaders and pools have others
    process = 0


def group_of(tensor: torch.Tensor) -> Any:
    return Rank.host if tensor.device.type == "cpu" else None


def gather_tensors(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The tensors of all ranks, in rank order; all have one shape."""
    with torch.inference_mode(False):  # in which torch 1.13 could not receive anything
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor, group_of(tensor))
    return gathered


def exchange_numbers(numbers: List[int]) -> List[List[int]]:
    """The numbers of all ranks, in rank order; each rank brings as many."""
    own = torch.tensor([int(number) for number in numbers])
    return [each.tolist() for each in gather_tensors(own)]


class CannotBeSent(RuntimeError):
    """Raised on all ranks; one that raised alone would leave the others waiting."""


def tell_all(news: Any = None, source: int = 0) -> Any:
    """One rank's news, rank 0's unless said otherwise, on every rank."""
    if dist.get_rank() == source:
        try:
            pickle.dumps(news)
        except Exception as reason:
            news = CannotBeSent(f"rank {source} cannot send this to the other ranks: {reason}")
    message = [news]
    dist.broadcast_object_list(message, source, Rank.host)
    if isinstance(message[0], CannotBeSent):
        raise message[0]
    return message[0]


def host_streams() -> List[Any]:
    """The states of Python's, torch's and numpy's random numbers on the host."""
    numpy = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]


def set_host_streams(states: List[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if states[2] and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states[2])


class ReplicaStream:
    """The stream of device r, from which replica r draws on rank r > 0; it begins anew when all devices are seeded."""

    seed: Optional[int] = None
    state: Any = None

    @classmethod
    def current(cls) -> Any:
        if cls.seed != torch.initial_seed():  # torch.manual_seed has seeded all devices
            cls.begin(torch.Generator("cuda").manual_seed(torch.initial_seed()).get_state())
        return cls.state

    @classmethod
    def begin(cls, state: Any) -> None:
        cls.seed, cls.state = torch.initial_seed(), state


class ReplicaDraws:
    """Around a replica's forward: it draws from streams of its own, and the script's stay where they are.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """

    on_host = on_device = False

    @contextmanager
    def __call__(self, has_rows: bool) -> Iterator[None]:
        script, device = host_streams(), None
        if torch.cuda.is_available():
            device = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(ReplicaStream.current() if dist.get_rank() else device)
        seed = int(torch.randint(2**62, (), device="cpu")) + dist.get_rank()
        self.after = torch.get_rng_state()
        seed_host_streams(seed)
        first = draw_on_host()
        seed_host_streams(seed)
        try:
            yield
        finally:
            self.on_host = draw_on_host() != first  # nothing drew if that number comes next
            set_host_streams(script)
            if device is not None:
                end = torch.cuda.get_rng_state()
                self.on_device = not torch.equal(device, end)
                if dist.get_rank():
                    torch.cuda.set_rng_state(device)
                    ReplicaStream.state = end if has_rows else ReplicaStream.state

    def go_on(self, on_host: bool, on_device: bool) -> None:
        """The script's streams go on behind what replica 0 drew."""
        if on_host:
            torch.set_rng_state(self.after)
        if on_device:
            torch.cuda.set_rng_state(tell_all(torch.cuda.get_rng_state()))


def seed_host_streams(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def draw_on_host() -> List[Any]:
    numpy = sys.modules.get("numpy")
    of_torch = torch.rand((), dtype=torch.float64, device="cpu").item()
    return [random.random(), of_torch, numpy and numpy.random.random_sample()]


LAUNCHER = (  # what torchrun says to the processes that it starts
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
)


def init_distributed() -> None:
    """Become one rank of the run that torchrun started; without torchrun, the only one.

    Rank r uses cuda:r. All ranks begin with rank 0's random numbers, so they shuffle and initialize alike, and only
    rank 0 prints.
    """
    if multiprocessing.current_process().name != "MainProcess" or has_joined():
        return  # a worker of a DataLoader that imports the script; a notebook that runs this once more
    backend, timeout = "gloo", timedelta(hours=2)
    if torch.cuda.is_available():
        devices = torch.cuda.device_count()
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % devices)
        torch.serialization.register_package(0, lambda storage: None, load_on_own_device)
        if dist.is_nccl_available() and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) <= devices:
            backend = "nccl"  # which wants a device for each rank
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout)
        Rank.host = dist.new_group(backend="gloo", timeout=timeout) if backend == "nccl" else None
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    Rank.process = os.getpid()
    atexit.register(end_distributed)
    sys.excepthook = show_error
    if dist.get_rank() > 0:
        nowhere = open(os.devnull, "w", encoding="utf-8", errors="ignore")  # noqa: SIM115
        vars(sys).update(stdout=nowhere, stderr=nowhere, __stdout__=nowhere)
    set_host_streams(tell_all(host_streams()))
    if torch.cuda.is_available():  # without a seed, each device begins at one of its own
        ReplicaStream.begin(torch.cuda.get_rng_state())
        torch.cuda.set_rng_state(tell_all(torch.cuda.get_rng_state()))
    for name in LAUNCHER:  # libraries that ask whether there are ranks hear what they heard before: no
        os.environ.pop(name, None)
    dist.is_initialized = lambda: False


def has_joined() -> bool:
    """What dist.is_initialized() says until init_distributed() hides the ranks."""
    return dist.distributed_c10d.is_initialized()


def together() -> bool:
    """Whether the other ranks do the same now: not in workers and threads, and not while rank 0 is alone."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and not Rank.is_alone and Rank.process == os.getpid()


def show_error(*error: Any) -> None:
    """sys.excepthook of every rank. Its end must not wait for the other ranks: torchrun ends them."""
    traceback.print_exception(*error, file=sys.__stderr__)
    atexit.unregister(end_distributed)


def end_distributed() -> None:
    if Rank.process == os.getpid():
        gc.collect()
        Rank.process = 0
        dist.destroy_process_group()


def load_on_own_device(storage: Any, location: str) -> Any:
    """For torch.load: what was saved on any GPU comes to this rank's."""
    return storage.cuda(torch.cuda.current_device()) if location.startswith("cuda") else None


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with function(tensor) in each tensor's place."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, (tuple, list, dict)) and not tree:
        return tree  # all replicas get the same one
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, each) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, each) for each in tree)
    if isinstance(tree, dict):
        return type(tree)((key, map_tensors(function, each)) for key, each in tree.items())
    return tree


def share_tensors(tensors: Sequence[torch.Tensor], owner: int = 0) -> None:
    """Give a rank's numbers to all ranks, in one message for each type of number."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor.data for tensor in tensors if tensor.dtype == dtype]  # autograd may have saved them
        message = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.broadcast(message, owner, group_of(message))
        if dist.get_rank() != owner:
            for tensor, part in zip(alike, message.split([tensor.numel() for tensor in alike])):
                tensor.copy_(part.view_as(tensor))


def make_replica(module: torch.nn.Module, copies: Mapping[Any, torch.Tensor]) -> Any:
    """A copy of a module with copies in place of its parameters; what forward assigns to it is gone with it.

    Buffers are the module's own: rank 0's replica changes them, as replica 0 of DataParallel does.
    """
    replicas: Dict[Any, Any] = {part: part._replicate_for_data_parallel() for part in module.modules()}
    for part, replica in replicas.items():
        parameters = part._parameters.items()
        replica._modules.update({name: replicas.get(child) for name, child in part._modules.items()})
        replica._parameters.update({name: None for name, parameter in parameters if parameter is None})
        replica._former_parameters = {name: copies[p] for name, p in parameters if p is not None}
        vars(replica).update(replica._former_parameters)  # plain tensors, no parameters of the replica
    return replicas[module]


def run_alone(module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
    """A forward on one device, to which DataParallel moves what it is given."""
    device = next((parameter.device for parameter in module.parameters()), None)
    inputs, kwargs = map_tensors(lambda tensor: tensor.to(device or tensor.device), (inputs, kwargs))
    return module(*inputs, **kwargs)


def versions_of(module: torch.nn.Module) -> Tuple[List[int], List[int]]:
    """Numbers that change with buffers and parameters."""
    return [each._version for each in module.buffers()], [each._version for each in module.parameters()]


def gather_rows(rows: torch.Tensor, counts: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of all ranks along a dimension, in rank order; counts are the numbers of rows of all ranks."""
    rows = rows.transpose(0, dim)
    padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
    padded[: len(rows)] = rows
    parts = [part[:count].transpose(0, dim) for part, count in zip(gather_tensors(padded), counts)]
    return torch.cat(parts, dim)


class WholeBatchDDP(DistributedDataParallel):
    """DistributedDataParallel that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r of the batch, on a replica; a rank without rows computes two, and keeps nothing of them. All
    ranks compute the loss of the whole batch. Buffers are rank 0's, as DataParallel's are its first replica's.
    """

    def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        init_distributed()  # a script that was not converted may import what was
        super().__init__(module.cuda() if torch.cuda.is_available() else module)
        self.broadcast_buffers = False  # before forwards: they are shared behind them
        refuse(dim != 0, "batches are not cut along dimension 0")
        self.is_alone = dist.get_world_size() == 1 or device_ids is not None and len(device_ids) == 1
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.sums = SumsOnce()
        self.register_comm_hook(None, self.sums.average)
        atexit.register(drop_reducer, weakref.ref(self))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.is_alone or not together():
            return run_alone(self.module, inputs, kwargs)
        rank, world, draws = dist.get_rank(), dist.get_world_size(), ReplicaDraws()
        if torch.is_grad_enabled():
            self.check()
        has_rows = rank == 0 or bool(inputs or kwargs)  # without arguments, DataParallel runs on one device

        def take_rows(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal has_rows
            refuse(tensor.requires_grad and torch.is_grad_enabled(), "an input needs a gradient")
            chunks = tensor.chunk(world)
            has_rows = has_rows and rank < len(chunks)
            return (chunks[rank] if rank < len(chunks) else tensor[:2]).to(self.device, copy=True)

        def keep_rows(output: torch.Tensor) -> torch.Tensor:
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            sizes.append(len(rows) if has_rows else 0)
            return rows[: sizes[-1]]

        def gather(rows: torch.Tensor) -> Any:
            trained = self.trained if rows.requires_grad else []
            return GatherRows.apply(self.sums, next(counts), rows, *trained)

        inputs, kwargs = map_tensors(take_rows, (inputs, kwargs))
        before = versions_of(self.module)
        sizes: List[int] = []
        with draws(has_rows):
            outputs = map_tensors(keep_rows, super().forward(*inputs, **kwargs))
        after = versions_of(self.module)
        refuse(after[1] != before[1], "a forward writes into parameters")
        writes = self.training or after[0] != before[0]
        numbers = exchange_numbers([draws.on_host, draws.on_device, writes, *sizes])
        on_host, on_device, all_writes, *columns = zip(*numbers)
        draws.go_on(bool(on_host[0]), bool(on_device[0]))
        if any(all_writes):
            share_tensors([*self.module.buffers()])
        counts = iter(columns)
        return map_tensors(gather, outputs)

    def check(self) -> None:
        """Refuse what DistributedDataParallel does not see."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        others = [*map(id, trained)] != [*map(id, self.trained)]
        refuse(others, "other parameters are trained than at the wrap")
        hooked = [each for each in (*trained, *self.module.modules()) if each._backward_hooks]
        refuse(bool(hooked), "a parameter or a layer has a backward hook")
        self.sums.are_done = False

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        copies = {p: p.view_as(p) for p in self.module.parameters()}
        return make_replica(self.module, copies)(*inputs, **kwargs)

    def _get_name(self) -> str:
        return "DataParallel"

    def __deepcopy__(self, memo: Any) -> Any:
        new = WholeBatchDDP(copy.deepcopy(self.module, memo))
        new.training = self.training  # its own alone: parts may be in another mode
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for."""
        state = {**vars(torch.nn.DataParallel(self.module)), "training": self.training}
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, state


class GatherRows(torch.autograd.Function):
    """A rank's rows to those of all ranks.

    All ranks compute the loss of the whole batch, so the gradient of a rank's rows is its part of DataParallel's sum.
    DistributedDataParallel averages, also what is in .grad already: it needs world_size times as much. Parameters that
    a replica leaves out get None here, and zeros from DistributedDataParallel, as under DataParallel.
    """

    @staticmethod
    def forward(
        ctx: Any, sums: Any, counts: Any, rows: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.sums, ctx.counts, ctx.others = sums, counts, [None for _ in parameters]
        return gather_rows(rows, counts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        refuse(torch.is_grad_enabled(), "gradients of gradients are wanted")
        refuse(ctx.sums.are_done, "a second backward comes before the next forward")
        torch.autograd.Variable._execution_engine.queue_callback(ctx.sums.check)
        return (None, None, gradient.split(ctx.counts)[dist.get_rank()] * dist.get_world_size(), *ctx.others)


class SumsOnce:
    """DistributedDataParallel sums gradients once between two forwards: this sees whether it has."""

    are_done = False

    def average(
        self,
        group: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch looks at both annotations
    ) -> torch.futures.Future[torch.Tensor]:
        self.are_done = True
        return allreduce_hook(group, bucket)

    def check(self) -> None:
        refuse(not self.are_done, "autograd.grad or backward(inputs=...) asks for some gradients")


def drop_reducer(model: Any) -> None:
    """At exit, before the process group ends: with gloo, a reducer that outlives it may abort the process."""
    if model() is not None:
        vars(model()).update(reducer=None, logger=None)


def refuse(condition: bool, reason: str) -> None:
    if condition:
        raise RuntimeError(f"{reason}: wrap the model in WholeBatchParallel, not in WholeBatchDDP")
