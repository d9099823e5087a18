"""What scripts need that dp2ddp converted (edition 756e662e): yours now, it needs torch alone."""

import atexit
import gc
import multiprocessing
import os
import pickle
import random
import sys
import traceback
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
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


def scatter_on_ranks(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter."""
    if isinstance(inputs, torch.Tensor):
        return scatter_tensor_on_ranks(target_gpus, None, dim, inputs)
    if not isinstance(inputs, (tuple, list, dict)) or not inputs:
        return [inputs for _ in target_gpus]
    items = inputs.items() if isinstance(inputs, dict) else inputs
    rows = zip(*(scatter_on_ranks(item, target_gpus, dim) for item in items))
    kind: Any = type(inputs)
    return [kind(*row) if hasattr(kind, "_fields") else kind(row) for row in rows]


def scatter_tensor_on_ranks(
    target_gpus: Any, chunk_sizes: Any, dim: int, tensor: torch.Tensor
) -> Tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Scatter.apply."""
    parts = tensor.chunk(len(target_gpus), dim) if chunk_sizes is None else tensor.split([*chunk_sizes], dim)
    device = "cuda" if torch.cuda.is_available() else tensor.device
    return tuple(part.to(device) for part in parts)


def replicate_on_ranks(network: torch.nn.Module, devices: Any, detach: bool = False) -> List[Any]:
    """torch.nn.parallel.replicate: replica r runs on rank r alone."""
    rows = Rows(0)
    rows.want_gradient = True  # other things may be summed in backward between these
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        copies = copies_of(network, sums_of(network, rows))
    replicas = [make_replica(network, copies) for _ in devices]
    for number, replica in enumerate(replicas):
        replica.of_all_ranks = number, network, copies
        if number != dist.get_rank() and dist.get_world_size() > 1:
            replica.forward = Refuse(number)
    return replicas


class Refuse:
    """The forward of another rank's replica."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *inputs: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"replica {self.number} runs on rank {self.number}: call it by parallel_apply")


class Broadcasts:
    """What was broadcast by hand and is still in use, in the order of the calls."""

    copies: "List[weakref.ref[torch.Tensor]]" = []  # their gradients are summed over the ranks
    others: "List[weakref.ref[torch.Tensor]]" = []


def in_use(tensors: "List[weakref.ref[torch.Tensor]]") -> List[torch.Tensor]:
    tensors[:] = [each for each in tensors if each() is not None]
    return [tensor for tensor in (each() for each in tensors) if tensor is not None]


class Running:
    """The replicas of the call of parallel_apply that goes on."""

    numbers: List[int] = []
    exchange_messages = False


def parallel_apply_on_ranks(
    modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> List[Any]:
    """torch.nn.parallel.parallel_apply: all ranks get all outputs."""
    inputs = [each if isinstance(each, (tuple, list)) else (each,) for each in inputs]
    options = [each or {} for each in kwargs_tup or [None] * len(modules)]
    if dist.get_world_size() == 1:
        return [module(*rows, **named) for module, rows, named in zip(modules, inputs, options)]
    numbers = [getattr(module, "of_all_ranks", (place,))[0] for place, module in enumerate(modules)]
    if max(numbers) >= dist.get_world_size():
        raise RuntimeError(f"{max(numbers) + 1} replicas need as many ranks")
    origins = [module.of_all_ranks[1:] for module in modules if hasattr(module, "of_all_ranks")]
    networks = [*dict.fromkeys(network for network, _ in origins)]
    has_rows, Running.numbers = dist.get_rank() in numbers, numbers
    place = numbers.index(dist.get_rank()) if has_rows else 0
    mine = modules[place]
    if not has_rows:  # it runs the first replica, for its messages and its way back, and keeps nothing
        vars(mine).pop("forward", None)
    tensors = [
        tensor for tensor in tensors_of((inputs, options)) if tensor.requires_grad and torch.is_grad_enabled()
    ]
    entered = dict(zip(map(id, tensors), CopyToRanks.apply(*tensors))) if tensors else {}
    rows, named = map_tensors(lambda tensor: entered.get(id(tensor), tensor), (inputs[place], options[place]))
    outputs, error, draws, before = None, None, ReplicaDraws(), [versions_of(network) for network in networks]
    with draws(has_rows):
        try:
            outputs = mine(*rows, **named)
        except Exception as raised:
            if Running.exchange_messages:
                raise
            error = raised if has_rows else None
    changes = [changes_of(network, old) for network, old in zip(networks, before)]
    own = SideEffects(
        draws.on_host, draws.on_device, any(each[0] for each in changes), any(each[1] for each in changes)
    )
    effects, _ = meet(error, own, [])
    draws.go_on(effects.drew_on_host, effects.drew_on_device)
    shared = [b for network in networks for b in network.buffers()] if effects.changed_buffers else []
    shared += [p for network in networks for p in network.parameters()] if effects.changed_parameters else []
    share_tensors([*dict.fromkeys([*shared, *in_use(Broadcasts.others)])])
    ties = [
        *(copy for _, copies in origins for copy in copies.values()),
        *entered.values(),
        *in_use(Broadcasts.copies),
    ]
    if not has_rows:
        ties += [tensor for tensor in tensors_of(outputs) if tensor.requires_grad]
    return [share_tree(outputs if owner == dist.get_rank() else None, owner, ties) for owner in numbers]


def gather_on_ranks(outputs: Any, target_device: Any = None, dim: int = 0) -> Any:
    """torch.nn.parallel.gather."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        if all(each.dim() == 0 for each in outputs):  # DataParallel makes a vector of numbers
            return torch.stack([*outputs])
        return torch.cat([*outputs], dim)
    if first is None:
        return None
    kind: Any = type(first)
    if isinstance(first, dict):
        return kind(
            (key, gather_on_ranks([each[key] for each in outputs], target_device, dim)) for key in first
        )
    joined = (gather_on_ranks(each, target_device, dim) for each in zip(*outputs))
    return kind(*joined) if hasattr(kind, "_fields") else kind(joined)
