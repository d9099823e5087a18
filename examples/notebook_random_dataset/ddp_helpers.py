"""What scripts need that dp2ddp converted (edition 756e662e): yours now, it needs torch alone."""

import array
import atexit
import copy
import copyreg
import dis
import functools
import gc
import io
import logging
import multiprocessing
import os
import pickle
import random
import sys
import tempfile
import threading
import traceback
import weakref
import zlib
from collections import deque
from contextlib import ExitStack, contextmanager, redirect_stdout
from datetime import timedelta
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from unittest import mock
from weakref import WeakSet

import torch
import torch.distributed as dist


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


def count_ranks() -> int:
    """How many ranks there are: as many as there were devices."""
    return dist.get_world_size() if has_joined() else 1


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


FILES: Any = (
    weakref.WeakValueDictionary()
)


AT_ONCE = 8


class SideEffects(NamedTuple):
    """What a replica's forward did beside computing."""

    drew_on_host: bool
    drew_on_device: bool
    changed_buffers: bool
    changed_parameters: bool


def meet(
    error: Optional[Exception], own: SideEffects, sizes: List[int]
) -> Tuple[SideEffects, List[List[int]]]:
    """The side effects that count (replica 0's draws, any replica's changes), and each output's rows on each rank.

    What a replica raises is raised on all ranks.
    """
    first = [*sizes, *[0] * AT_ONCE][:AT_ONCE]
    all_numbers = exchange_numbers([error is not None, *own, len(sizes), *first])
    failed = [numbers[0] for numbers in all_numbers]
    if any(failed):
        error_of_all = tell_all(error, failed.index(1))  # by the first of them, to all
        raise error or error_of_all
    if len({numbers[5] for numbers in all_numbers}) > 1:
        raise RuntimeError("replicas give different numbers of outputs: DataParallel cannot gather them")
    columns = [[*map(bool, column)] for column in zip(*all_numbers)][1:5]
    effects = SideEffects(columns[0][0], columns[1][0], any(columns[2]), any(columns[3]))
    counts = [numbers[6:] for numbers in all_numbers]
    if len(sizes) > AT_ONCE:
        counts = exchange_numbers(sizes)
    return effects, [[*column] for column in zip(*counts)][: len(sizes)]


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


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(each)


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


class TakeRows(torch.autograd.Function):
    """This rank's rows of a tensor that all ranks hold; counts are the numbers of rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, counts: List[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return whole.split(counts, dim)[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinRows.apply(gradient, ctx.counts, ctx.dim), None, None


class JoinRows(torch.autograd.Function):
    """The rows of all ranks. All ranks compute the same with them, so a rank's gradient is that of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: List[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return gather_rows(rows, counts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return TakeRows.apply(gradient, ctx.counts, ctx.dim), None, None


class Rows:
    """Which rows of a batch this rank computes: DataParallel's chunk of its number."""

    def __init__(self, dim: int) -> None:
        self.dim, self.has_any, self.want_gradient = dim, True, False

    def take(self, tensor: torch.Tensor, device: Any) -> torch.Tensor:
        """The own rows of a tensor. A rank that has none computes two of others', and keeps nothing of them."""
        counts = [chunk.shape[self.dim] for chunk in tensor.chunk(dist.get_world_size(), self.dim)]
        counts += [0] * (dist.get_world_size() - len(counts))
        self.want_gradient |= tensor.requires_grad
        if counts[dist.get_rank()]:
            return TakeRows.apply(tensor, counts, self.dim).to(device or tensor.device)
        self.has_any = False
        others = tensor.detach().narrow(self.dim, 0, min(2, tensor.shape[self.dim]))
        rows = torch.cat([TakeRows.apply(tensor, counts, self.dim), others], self.dim)
        return rows.to(device or tensor.device)

    def kept(self, output: torch.Tensor) -> torch.Tensor:
        """The rows of an output that are this rank's; a number is a row, as DataParallel makes a vector of them."""
        rows = output if output.dim() else output.reshape(1)
        return rows if self.has_any else rows.narrow(self.dim, 0, 0)

    def join(self, output: torch.Tensor, counts: List[int]) -> torch.Tensor:
        return JoinRows.apply(self.kept(output), counts, self.dim)


Tensors = Sequence[torch.Tensor]


class GradientSums:
    """The parameters of one forward on their way into a replica, and their gradients on the way back.

    Sums set out while backward runs, in buckets and in one order on all ranks, as those of DistributedDataParallel do:
    unless something else that ranks exchange in backward could come between (wait).
    """

    in_graphs: "WeakSet[GradientSums]" = WeakSet()

    def __init__(self, parameters: Tensors, sparse: Collection[torch.Tensor], wait: bool = False) -> None:
        self.parameters, self.wait = parameters, wait
        self.sparse = [
            i for i, parameter in enumerate(parameters) if any(parameter is table for table in sparse)
        ]
        self.buckets = make_buckets(parameters, self.sparse)
        self.in_graphs.add(self)
        self.watch_buffers([])
        self.begin()

    def begin(self) -> None:
        self.own: List[Optional[Tensors]] = [None] * len(self.buckets)
        self.messages: List[torch.Tensor] = []
        self.works: List[Any] = []

    def watch_buffers(self, buffers: List[torch.Tensor]) -> None:
        """Backward may change them: a checkpoint runs its part of the forward again."""
        self.buffers, self.versions = buffers, [buffer._version for buffer in buffers]

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        """What stands for each parameter in the replica of this rank."""
        copies = [*AwaitSums.apply(self, *self.parameters)]
        for number, bucket in enumerate(self.buckets):
            leaving = LeaveRank.apply(self, number, *(copies[i] for i in bucket))
            if hasattr(
                leaving[0].grad_fn, "_set_sequence_nr"
            ):  # autograd runs it once its gradients are there
                leaving[0].grad_fn._set_sequence_nr(2**62)
            for i, copy in zip(bucket, leaving):
                copies[i] = copy
        return dict(zip(self.parameters, copies))

    def arrive(self, number: int, gradients: Tensors) -> None:
        """Gradients of a bucket are there; its sum sets out once those before it have."""
        own = self.own[number]
        if own is not None and len(self.messages) > number:
            raise RuntimeError("gradients came after their sum: call checkpoint with use_reentrant=False")
        self.own[number] = gradients if own is None else [a + b for a, b in zip(own, gradients)]
        if not self.wait and len(self.in_graphs) == 1:
            self.set_out()

    def set_out(self) -> None:
        while len(self.messages) < len(self.own):
            gradients = self.own[len(self.messages)]
            if gradients is None:
                return
            self.messages.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
            self.works.append(dist.all_reduce(self.messages[-1], async_op=True))

    def finish(self, gradients: List[Any]) -> List[torch.Tensor]:
        """The sums of all gradients; zeros where backward left parameters out, as DataParallel has them."""
        for number, bucket in enumerate(self.buckets):
            if self.own[number] is None:
                self.own[number] = [torch.zeros_like(self.parameters[i]) for i in bucket]
        self.set_out()
        for work, message, bucket in zip(self.works, self.messages, self.buckets):
            work.wait()
            for i, part in zip(bucket, message.split([self.parameters[i].numel() for i in bucket])):
                gradients[i] = part.view_as(self.parameters[i])
        for i in self.sparse:
            gradients[i] = sum_sparse(gradients[i], self.parameters[i])
        if self.versions != [buffer._version for buffer in self.buffers]:
            share_tensors(self.buffers)
        self.begin()
        self.in_graphs.discard(self)
        return gradients


def sum_sparse(gradient: Optional[torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """The sum of what ranks looked up in a table, in rank order, as DataParallel adds; dense if one of them is."""
    parts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, gradient, Rank.host)
    own = [part.to(parameter.device) for part in parts if part is not None]
    own = own if all(part.is_sparse for part in own) else [part.to_dense() for part in own]
    return sum(own[1:], own[0]) if own else torch.zeros_like(parameter).to_sparse()


def make_buckets(parameters: Tensors, left_out: Sequence[int]) -> List[List[int]]:
    """Places of parameters, the last first (they are the first to have gradients): 1 MB, then 25 MB each."""
    buckets: List[List[int]] = []
    room = 0
    for i in reversed(range(len(parameters))):
        size = parameters[i].numel() * parameters[i].element_size()
        if i in left_out:
            continue
        if not buckets or size > room or parameters[i].dtype != parameters[buckets[-1][0]].dtype:
            room = 25 * 2**20 if buckets else 2**20
            buckets.append([])
        buckets[-1].append(i)
        room -= size
    return buckets


class LeaveRank(torch.autograd.Function):
    """Copies of a bucket's parameters; backward brings their gradients."""

    @staticmethod
    def forward(ctx: Any, sums: GradientSums, number: int, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.number = sums, number
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # there will be gradients of these: AwaitSums sums them as functions
            return (None, None, *gradients)
        ctx.sums.arrive(ctx.number, gradients)
        return (None, None, *(None for _ in gradients))


class AwaitSums(torch.autograd.Function):
    """Copies of all parameters. It is made before the forward, so its backward runs last, and waits for the sums."""

    @staticmethod
    def forward(ctx: Any, sums: GradientSums, *tensors: torch.Tensor) -> Any:
        ctx.sums = sums
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not torch.is_grad_enabled():
            return (None, *ctx.sums.finish([*gradients]))
        pairs = zip(gradients, ctx.sums.parameters)
        return (None, *SumOverRanks.apply(*(torch.zeros_like(p) if g is None else g for g, p in pairs)))


class SumOverRanks(torch.autograd.Function):
    """The sums over the ranks of what each of them has. CopyToRanks is its gradient, and the other way round."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        sums = [tensor.clone().contiguous() for tensor in tensors]
        for each in sums:
            dist.all_reduce(each)
        return tuple(sums)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(*gradients)


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold; their gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return SumOverRanks.apply(*gradients)


class WholeBatchParallel(torch.nn.Module):
    """A model that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r, on a replica. Parameters and buffers are the same on all ranks (buffers are rank 0's, as
    DataParallel keeps its first replica's).
    """

    stands_for_data_parallel = True  # as no class of the script's own does
    of_program: Any = None  # the wrapper that does

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        init_distributed()  # a script that was not converted may import what was
        self.module, self.dim = module, dim
        self.device_ids = [*range(dist.get_world_size())] if device_ids is None else [*device_ids]
        first = self.device_ids[0] if self.device_ids else None
        self.output_device = first if output_device is None else output_device
        share_tensors([*module.parameters(), *module.buffers()])
        # of one that comes out of a file
        torch.nn.DataParallel.__setstate__ = WholeBatchParallel.take_place  # type: ignore[method-assign]
        if "stands_for_data_parallel" in vars(type(self)):
            WholeBatchParallel.of_program = type(self)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if dist.get_world_size() == 1 or len(self.device_ids) == 1 or not together():
            return run_alone(self.module, inputs, kwargs)
        return compute_own_rows(self.module, self.dim, self.run_replica, inputs, kwargs)

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return replica(*inputs, **kwargs)

    def _get_name(self) -> str:
        return "DataParallel" if type(self) is WholeBatchParallel.of_program else type(self).__name__

    def __deepcopy__(self, memo: Any) -> Any:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for."""
        if type(self) is not WholeBatchParallel.of_program:
            return super().__reduce_ex__(protocol)
        first = torch.device("cuda", self.device_ids[0]) if self.device_ids else None
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, {**vars(self), "src_device_obj": first}  # type: ignore[attr-defined]

    def take_place(self: Any, state: Any) -> None:
        if type(self) is torch.nn.DataParallel:
            self.__class__ = WholeBatchParallel.of_program
        torch.nn.Module.__setstate__(self, state)


def compute_own_rows(module: torch.nn.Module, dim: int, run_replica: Any, inputs: Any, kwargs: Any) -> Any:
    """The outputs of the whole batch, of which this rank computes its chunk."""
    parameters, rows, draws = [*module.parameters()], Rows(dim), ReplicaDraws()
    if not inputs and not kwargs:  # then DataParallel runs on one device
        rows.has_any = dist.get_rank() == 0
    device = parameters[0].device if parameters else None
    inputs, kwargs = map_tensors(lambda tensor: rows.take(tensor, device), (inputs, kwargs))
    outputs, error, before = None, None, versions_of(module)
    sums = sums_of(module, rows)
    copies = copies_of(module, sums)
    with draws(rows.has_any):
        try:
            outputs = run_replica(make_replica(module, copies), rows.has_any, inputs, kwargs)
        except Exception as raised:
            error = raised if rows.has_any else None
    own = SideEffects(draws.on_host, draws.on_device, *changes_of(module, before))
    sizes = [rows.kept(output).shape[dim] for output in tensors_of(outputs)]
    effects, counts = meet(error, own, sizes)
    draws.go_on(effects.drew_on_host, effects.drew_on_device)
    if effects.changed_buffers:
        share_tensors([*module.buffers()])
    if effects.changed_parameters:  # a forward that writes into weights: those of replica 0 stay
        share_tensors(parameters)
    if sums:
        sums.watch_buffers([*module.buffers()])
    next_counts = iter(counts)
    return map_tensors(lambda output: rows.join(output, next(next_counts)), outputs)


def sums_of(module: torch.nn.Module, rows: Rows) -> Optional[GradientSums]:
    """What sums the gradients of a forward over the ranks, if it leaves any."""
    trained = [p for p in module.parameters() if p.requires_grad and torch.is_grad_enabled()]
    sparse: List[Any] = [part.weight for part in module.modules() if getattr(part, "sparse", False) is True]
    return GradientSums(trained, sparse, wait=rows.want_gradient) if trained else None


def copies_of(module: torch.nn.Module, sums: Optional[GradientSums]) -> Dict[Any, torch.Tensor]:
    """What stands for parameters in the replica of this rank."""
    copies: Dict[Any, torch.Tensor] = {p: p.view_as(p) for p in module.parameters()}
    return {**copies, **(sums.copies() if sums else {})}


def changes_of(module: torch.nn.Module, before: Any) -> List[bool]:
    """Whether a forward has changed buffers, and parameters."""
    now, trains = versions_of(module), any(part.training for part in module.modules())
    return [trains or now[0] != before[0], now[1] != before[1]]


def share_tree(tree: Any, owner: int, ties: Sequence[torch.Tensor]) -> Any:
    """The tree of one rank on all of them; ties are what all ranks go back to in backward, as the owner does."""
    devices = [tensor.device.type for tensor in tensors_of(tree)]
    forms, kinds = tell_all(
        (map_tensors(form_of, tree), devices) if owner == dist.get_rank() else None, owner
    )
    own, kind = tensors_of(tree), iter(kinds)

    def share(form: torch.Tensor) -> torch.Tensor:
        device = next(kind)
        tensor = next(own) if owner == dist.get_rank() else torch.empty_like(form, device=device)
        return FromRank.apply(owner, form.requires_grad, tensor, *ties)

    return map_tensors(share, forms)


def form_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without its numbers."""
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


class FromRank(torch.autograd.Function):
    """A tensor of one rank, on all ranks."""

    @staticmethod
    def forward(
        ctx: Any, owner: int, wants_gradient: bool, tensor: torch.Tensor, *ties: torch.Tensor
    ) -> torch.Tensor:
        ctx.is_own, ctx.others = owner == dist.get_rank(), [None for _ in ties]
        whole = tensor.detach().clone().contiguous()
        dist.broadcast(whole, owner)
        if not wants_gradient:
            ctx.mark_non_differentiable(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (None, None, gradient if ctx.is_own else None, *ctx.others)


class WholeBatchInTurns(WholeBatchParallel):
    """WholeBatchParallel for a model whose forward or hooks print, write lines, or fill lists, counters, objects.

    What rank r's leaves there is told to all before the next one runs, as replicas of one process see it. It costs the
    time that ranks wait for each other.
    """

    stands_for_data_parallel = True

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        memory, outputs, errors = Reached(self.module, [*inputs, *kwargs.values()]), None, []
        shares_all = memory.reaches_modules
        copies = own_parameters(replica, shares_all)
        for rank in range(dist.get_world_size()):
            news: Any = None
            if rank == dist.get_rank():
                with kept_lines() as lines:
                    try:
                        outputs = super().run_replica(replica, has_rows, inputs, kwargs)
                    except Exception as error:
                        errors.append(error)
                left = memory.news(has_rows, errors)
                news = left, lines if has_rows else None, memory.new
            left, lines_there, tensors = share_tree(news, rank, copies)
            write_lines(lines_there or [])
            try:
                memory.follow(rank, left, tensors)
            except Exception as error:
                errors.append(error)
            if shares_all and lines_there is not None:
                share_tensors([*self.module.parameters(), *self.module.buffers()], rank)
        memory.connect(copies)
        share_tensors([*self.module.parameters()])  # a forward may write into their .data: replica 0's stay
        if errors:
            raise errors[0]
        return outputs


@contextmanager
def kept_lines() -> Iterator[List[Any]]:
    """What a replica prints, logs, and writes to files that rank 0 alone has: for `write_lines` on all ranks."""
    kept: List[Any] = []
    printed = io.StringIO()
    printed.write = kept.append  # type: ignore[assignment]

    def keep(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        kept.append(record)

    with ExitStack() as ends:
        ends.enter_context(redirect_stdout(printed))
        ends.enter_context(mock.patch.multiple(logging.Logger, handle=keep, isEnabledFor=lambda *given: True))
        for path, file in FILES.items() if dist.get_rank() else ():
            buffer = getattr(file, "buffer", file)
            if not file.closed and isinstance(buffer, (io.BufferedWriter, io.BufferedRandom)):
                ends.enter_context(kept_bytes(path, file, kept))
        yield kept


@contextmanager
def kept_bytes(path: str, file: Any, kept: List[Any]) -> Iterator[None]:
    """What is written to a file, elsewhere."""
    file.flush()
    nowhere = os.dup(file.fileno())
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), file.fileno())
        try:
            yield
        finally:
            file.flush()
            os.dup2(nowhere, file.fileno())
            os.close(nowhere)
            written.seek(0)
            kept.append((path, written.read()))


def write_lines(lines: List[Any]) -> None:
    """All ranks print and log what one has kept; rank 0's is seen."""
    for line in lines:
        if isinstance(line, str):
            sys.stdout.write(line)
        elif isinstance(line, logging.LogRecord):
            logger = logging.getLogger(line.name)
            if logger.isEnabledFor(line.levelno):
                logger.handle(line)
        elif dist.get_rank() == 0:
            file = FILES[line[0]]
            file.flush()
            getattr(file, "buffer", file).write(line[1])


def own_parameters(replica: Any, with_buffers: bool) -> List[torch.Tensor]:
    """The parameters of a replica: copies on ranks > 0, where writing into `p.data` must change no others."""
    own: Dict[int, torch.Tensor] = {}
    for part in replica.modules() if dist.get_rank() else ():
        for name, parameter in [*part._former_parameters.items()]:
            copy = own.setdefault(id(parameter), parameter.clone())
            setattr(part, name, copy)
        for name, buffer in [*part._buffers.items()] if with_buffers else ():
            part._buffers[name] = buffer if buffer is None else buffer.clone()
    return [*own.values()] or [p for part in replica.modules() for p in part._former_parameters.values()]


class Reached:
    """All that a forward can reach and change, numbered alike on all ranks, with a picture of what is in each thing."""

    def __init__(self, module: torch.nn.Module, given: List[Any]) -> None:
        self.things: List[Any] = []
        self.numbers: Dict[int, int] = {}  # by the id of a thing
        self.new: List[torch.Tensor] = []  # tensors that the forward of this turn has put there
        self.graphs: Dict[int, int] = {}  # by the number of a tensor with a gradient: the rank that made it
        for tensor in (*module.parameters(), *module.buffers()):
            self.add(tensor)
        self.looked_after = len(self.things)  # by the wrapper
        self.reaches_modules = False  # beside the replica: `self.layers = [self.fc]`, a hook that is a method
        hooks = (*HOOKS._global_forward_hooks.values(), *HOOKS._global_forward_pre_hooks.values())
        shared = [each for each in given if not isinstance(each, COPIED) or not len(each)]
        self.learn([*module.modules(), *hooks, *shared])
        self.pictures = self.look()

    def add(self, thing: Any) -> None:
        self.numbers.setdefault(id(thing), len(self.things))
        self.things.append(thing)

    def learn(self, things: List[Any]) -> None:
        """Number things, and what can be reached from them."""
        pending = things[::-1]
        while pending:
            thing = pending.pop()
            if isinstance(thing, PLAIN) or id(thing) in self.numbers:
                continue
            if is_of_one_process(thing):
                advice = "keep a list, and a place in it"
                raise RuntimeError(f"a forward can reach {thing!r}, which ranks cannot share: {advice}")
            self.add(thing)
            content = inside(content_of(thing))
            self.reaches_modules |= any(isinstance(each, KEEPS_PARAMETERS) for each in content)
            pending += content[::-1]

    def look(self) -> List[bytes]:
        return [self.dump(content_of(thing)) for thing in self.things[self.looked_after :]]

    def changes(self) -> Dict[int, bytes]:
        """What has changed since the last pictures, with the old ones."""
        pairs = enumerate(zip(self.pictures, self.look()), self.looked_after)
        return {number: old for number, (old, new) in pairs if old != new}

    def news(self, has_rows: bool, errors: List[Exception]) -> bytes:
        """What this rank's forward has left, for the others; nothing where it has run without rows."""
        contents: Dict[int, Any] = {}
        try:
            before = self.changes()
            if not has_rows:
                for number, picture in before.items():
                    put(self.things[number], self.load(picture))
                before, self.new = {}, []
            contents = {number: content_of(self.things[number]) for number in before}
            return self.dump((self.kinds(), contents))
        except Exception as error:
            errors.append(error)
            return self.dump((self.kinds(), {}))

    def follow(self, rank: int, news: bytes, tensors: List[torch.Tensor]) -> None:
        """Hold what a rank's forward has left."""
        is_own, kinds = rank == dist.get_rank(), self.kinds()
        if not is_own:
            self.new = [stand_in(tensor) for tensor in tensors]
        their_kinds, contents = self.load(news)
        if their_kinds != kinds:
            raise RuntimeError("a forward can reach other things on this rank than on another")
        for number, content in ({} if is_own else contents).items():
            put(self.things[number], content)
        for tensor in self.new:
            if tensor.requires_grad:
                self.graphs[len(self.things)] = rank
            self.add(tensor)
        self.new = []
        self.learn([each for number in contents for each in inside(content_of(self.things[number]))])
        self.pictures = self.look()

    def kinds(self) -> int:
        return zlib.crc32(" ".join(type(thing).__name__ for thing in self.things).encode())

    def connect(self, ties: List[torch.Tensor]) -> None:
        """Give tensors that forwards have kept their way back to the rank that made them."""
        for number, rank in self.graphs.items():
            tensor = self.things[number]
            own = tensor if rank == dist.get_rank() else tensor.detach()
            self.things[number] = FromRank.apply(rank, True, own, *ties)
        holders = [thing for thing in self.things if self.graphs and inside(content_of(thing))]
        for thing in holders:
            put(thing, self.load(self.dump(content_of(thing))))

    def dump(self, content: Any) -> bytes:
        file = io.BytesIO()
        try:
            Writer(file, self.name_of).dump(content)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise RuntimeError(f"a forward keeps what other ranks cannot have: {error}") from error
        return file.getvalue()

    def name_of(self, thing: Any) -> Any:
        """What stands in a picture for a thing that all ranks have, and for a new tensor."""
        if id(thing) in self.numbers:
            return self.numbers[id(thing)]
        if not isinstance(thing, torch.Tensor):
            return None
        place = next((place for place, each in enumerate(self.new) if each is thing), len(self.new))
        self.new[place:] = self.new[place:] or [thing]
        return "new", place

    def load(self, picture: bytes) -> Any:
        return Reader(io.BytesIO(picture), self.things, self.new).load()


class Writer(pickle.Pickler):
    def __init__(self, file: Any, name_of: Callable[[Any], Any]) -> None:
        super().__init__(file, 4)
        self.name_of = name_of

    def persistent_id(self, thing: Any) -> Any:
        return self.name_of(thing)


class Reader(pickle.Unpickler):
    def __init__(self, file: Any, things: List[Any], new: List[torch.Tensor]) -> None:
        super().__init__(file)
        self.things, self.new = things, new

    def persistent_load(self, name: Any) -> Any:
        return self.new[name[1]] if isinstance(name, tuple) else self.things[name]


PLAIN = (type(None), bool, int, float, complex, str, bytes)


WRAPPED = (
    (MethodType, ("__self__", "__func__")),
    (functools.partial, ("func", "args", "keywords")),
    ((staticmethod, classmethod), ("__func__",)),
    (property, ("fget", "fset")),
    (functools.cached_property, ("func",)),
)


CACHED = type(functools.lru_cache(maxsize=None)(len))


HOOKS: Any = torch.nn.modules.module


COPIED = (torch.Tensor, tuple, list, dict)


KEEPS_PARAMETERS = (torch.nn.Module, torch.nn.Parameter)


KINDS = (torch.Tensor, torch.nn.Parameter)


OF_ALL_MODULES = {*vars(torch.nn.Module())}


SEALED = {"torch", "numpy", "builtins", "functools", "logging", "weakref", "_io", "_thread", "_weakref"}


def content_of(thing: Any) -> Any:
    """What is in a thing: a dict or a list of others, or a tuple that says its state; None for what does not change."""
    kind = type(thing)
    if isinstance(thing, torch.nn.Module):  # of which a replica is a copy, but hooks set attributes of itself
        hooks = [*thing._forward_hooks.values(), *thing._forward_pre_hooks.values()]
        named = {name: each for name, each in vars(thing).items() if name not in OF_ALL_MODULES}
        kinds = [] if isinstance(thing, WholeBatchParallel) else [kind]
        return {**named, **dict(enumerate([*kinds, *hooks]))}
    if isinstance(thing, torch.Tensor):
        return (thing.shape, bytes_of(thing)) if kind in KINDS and thing.layout is torch.strided else None
    if is_array(thing):
        return (thing.shape, thing.tobytes())
    if isinstance(thing, (set, bytearray, array.array)):
        return (*thing,)
    if isinstance(thing, (dict, list, deque, tuple)):
        items = [each for pair in thing.items() for each in pair] if isinstance(thing, dict) else thing
        return [getattr(thing, "__dict__", None), *items]
    if has_stream(thing):
        return (stream_of(thing),)
    for wrapped, names in WRAPPED:
        if isinstance(thing, wrapped):
            return [getattr(thing, name) for name in names]
    if isinstance(thing, CACHED):
        return {"function": thing.__wrapped__, "misses": thing.cache_info().misses}
    if isinstance(thing, FunctionType):
        return variables_of(thing) if is_of_script(thing.__module__) else None
    if isinstance(thing, (type, ModuleType)):
        if not is_of_script(thing.__module__ if isinstance(thing, type) else thing.__name__):
            return None
        bases = thing.__bases__ if isinstance(thing, type) else ()
        return {
            **{
                name: each
                for name, each in vars(thing).items()
                if isinstance(each, FunctionType) or name[:2] != "__"
            },
            **dict(enumerate(bases)),
        }
    is_open = hasattr(thing, "__dict__") and kind.__module__.partition(".")[0] not in SEALED
    return [vars(thing), kind] if is_open and not hasattr(kind, "differs_by_rank") else None


def put(thing: Any, content: Any) -> None:
    """Let a thing hold what another rank's holds."""
    if isinstance(thing, torch.Tensor):
        if thing.shape != content[0]:
            thing.resize_(content[0])
        thing.data.copy_(tensor_of(content[1]).view(thing.dtype).view(content[0]))
    elif is_array(thing):
        thing[...] = sys.modules["numpy"].frombuffer(content[1], thing.dtype).reshape(content[0])
    elif isinstance(thing, (set, dict, list, deque, bytearray)):
        items = content if isinstance(content, tuple) else content[1:]
        thing.clear()
        if isinstance(thing, dict):
            for key, value in zip(items[::2], items[1::2]):  # update() of a Counter adds
                thing[key] = value
        else:
            (thing.update if isinstance(thing, set) else thing.extend)(items)
    elif isinstance(thing, array.array):
        thing[:] = array.array(thing.typecode, content)
    elif has_stream(thing):
        set_stream(thing, content[0])
    elif isinstance(thing, CACHED):
        raise RuntimeError(
            f"a forward calls {thing.__wrapped__.__name__}, whose cache ranks cannot share: take the cache away"
        )
    elif isinstance(content, dict):
        for name, each in content.items():
            put_variable(thing, name, each)


def put_variable(thing: Any, name: Any, value: Any) -> None:
    if isinstance(thing, FunctionType):
        if isinstance(name, int):
            thing.__closure__[name].cell_contents = value  # type: ignore[index]
        elif isinstance(name, str):
            thing.__globals__[name] = value
    elif isinstance(name, str) and vars(thing).get(name) is not value:
        if isinstance(thing, torch.nn.Module):
            vars(thing)[name] = value
        else:
            setattr(thing, name, value)


def variables_of(function: Any) -> Dict[Any, Any]:
    """What a function holds: variables of functions around it by their places, globals by their names, and the rest."""
    variables: Dict[Any, Any] = {}
    for place, cell in enumerate(function.__closure__ or ()):
        if cell != CellType():  # one without a value
            variables[place] = cell.cell_contents
    variables.update(
        {
            name: function.__globals__[name]
            for name in globals_of(function.__code__)
            if name in function.__globals__
        }
    )
    variables["", 0] = vars(function)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return {**variables, **{("", place): each for place, each in enumerate(defaults, 1)}}


@functools.lru_cache(maxsize=None)
def globals_of(code: CodeType) -> List[str]:
    names = [each.argval for each in dis.get_instructions(code) if each.opname.endswith(("_GLOBAL", "_NAME"))]
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in globals_of(each)]
    return sorted({*names, *inner})


def inside(content: Any) -> List[Any]:
    return [*content.values()] if isinstance(content, dict) else content if isinstance(content, list) else []


def is_of_script(home: Any) -> bool:
    """Whether a file is the script's own, and no library's."""
    file = getattr(sys.modules.get(home or ""), "__file__", None) or "site-packages"
    is_helper = home in (__name__, WholeBatchParallel.__module__)
    libraries = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    return home == "__main__" or not is_helper and not any(library in file for library in libraries)


def is_array(thing: Any) -> bool:
    is_numpys = type(thing).__module__ == "numpy" and hasattr(thing, "__array_finalize__")
    return is_numpys and not thing.dtype.hasobject


def is_of_one_process(thing: Any) -> bool:
    """Iterators, queues without a list in them, variables of a thread."""
    is_of_python = type(thing).__module__ in ("builtins", "itertools", "_queue")
    is_consumed = hasattr(type(thing), "__next__") or hasattr(type(thing), "get_nowait")
    return is_of_python and is_consumed or isinstance(thing, threading.local)


def has_stream(thing: Any) -> bool:
    is_numpys = type(thing).__module__.startswith("numpy.random") and hasattr(thing, "shuffle")
    return isinstance(thing, (torch.Generator, random.Random)) or is_numpys


def stream_of(generator: Any) -> Any:
    """The state of a generator of random numbers."""
    if isinstance(generator, torch.Generator):
        return bytes_of(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state()


def set_stream(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(tensor_of(state))
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().clone().contiguous().reshape(-1)  # numpy() would fix the size of its storage
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def tensor_of(content: bytes) -> torch.Tensor:
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )


def stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of another rank, until it gets its way back there."""
    own = tensor.detach()
    if tensor.requires_grad:
        own.requires_grad_().register_hook(refuse_gradient)
    return own


def refuse_gradient(gradient: torch.Tensor) -> None:
    raise RuntimeError(
        "a forward computes with a tensor that another replica's forward has kept, and wants its gradient: detach it"
    )
