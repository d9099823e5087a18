"""What scripts need that dp2ddp converted (edition 7ad638fc): yours now, it needs torch alone."""

import atexit
import copyreg
import gc
import multiprocessing
import os
import pickle
import random
import sys
import threading
import traceback
import zlib
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from weakref import WeakSet

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


def group_of(tensor: torch.Tensor) -> Any:
    return Rank.host if tensor.is_cpu else None


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


@contextmanager
def replica_draws(has_rows: bool, number: Optional[int] = None) -> Iterator[List[int]]:
    """Around a replica's forward: it draws from streams of its own. At the end, what `go_on_behind` is to know of it.

    On its device, replica r draws from the stream of device r; the first device's is the script's as well, as under
    DataParallel. On the host DataParallel's replicas race for the script's streams: replica r's begin at a number of
    the script's plus r, and the script goes on as if it had drawn that number, if replica 0 drew any.
    """
    drew: List[int] = []
    number = dist.get_rank() if number is None else number
    script, on_device = host_streams(), torch.cuda.is_available()
    if on_device:
        script_on_device = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(Rank.device_stream if number else script_on_device)
    seed = int(torch.randint(2**62, (), device="cpu")) + number
    seed_host_streams(seed)
    first = draw_on_host()
    seed_host_streams(seed)
    try:
        yield drew
    finally:
        drew += [draw_on_host() != first]  # nothing drew if that number comes next
        set_host_streams(script)
        if on_device:
            end = torch.cuda.get_rng_state()
            drew += end.view(torch.int64).tolist()
            if number or dist.get_rank():
                torch.cuda.set_rng_state(script_on_device)
                Rank.device_stream = end if has_rows else Rank.device_stream


def go_on_behind(drew: List[int]) -> None:
    """The script's streams go on behind what replica 0 drew: whether on the host, and to where on its device."""
    if drew[0]:
        torch.randint(2**62, (), device="cpu")
    if drew[1:]:
        torch.cuda.set_rng_state(torch.tensor(drew[1:], device="cpu").view(torch.uint8))


def seed_host_streams(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def draw_on_host() -> List[Any]:
    numpy = sys.modules.get("numpy")
    of_torch = torch.rand((), dtype=torch.float64, device="cpu").item()
    return [random.random(), of_torch, numpy and numpy.random.random_sample()]


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


def together() -> bool:
    """Whether the other ranks do the same now: not in workers and threads, and not while rank 0 is alone."""
    in_main = threading.current_thread() is threading.main_thread()
    is_rank = in_main and not Rank.is_alone and Rank.process == os.getpid()
    if is_rank and Rank.before_meeting:
        Rank.before_meeting()
    return is_rank


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


def map_tensors(function: Callable[[Any], Any], tree: Any, kind: Any = torch.Tensor) -> Any:
    """The same tree with function(tensor) in each tensor's place, or in that of all leaves of a kind."""
    if isinstance(tree, (tuple, list, dict)) and not tree:
        return tree  # all replicas get the same one
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, each, kind) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, each, kind) for each in tree)
    if isinstance(tree, dict):
        return type(tree)((key, map_tensors(function, each, kind)) for key, each in tree.items())
    return function(tree) if isinstance(tree, kind) else tree


def share_tensors(tensors: Sequence[torch.Tensor], owner: int = 0) -> None:
    """Give a rank's numbers to all ranks: as bytes, in one message for all types of number that lie in order."""
    messages: Dict[Any, List[torch.Tensor]] = {}
    for tensor in tensors:
        numbers = tensor.data  # autograd may have saved the tensor: its version stays
        numbers = torch.view_as_real(numbers) if tensor.is_complex() else numbers
        message = messages.setdefault(group_of(tensor) or dist.group.WORLD, [])
        message.append(numbers.view(-1).view(torch.uint8) if numbers.is_contiguous() else numbers)
    for group, message in messages.items():
        dist._broadcast_coalesced(group, message, 2**28, owner)  # type: ignore[attr-defined]


class ModuleState:
    """What a module holds, looked up once for a forward."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.parts: List[Any] = [*module.modules()]
        parameters = (p for part in self.parts for p in part._parameters.values() if p is not None)
        self.parameters = [*dict.fromkeys(parameters)]
        self.written: Sequence[torch.Tensor] = ()  # parameters, if a forward has written into some

    def buffers(self) -> List[torch.Tensor]:
        return [each for part in self.parts for each in part._buffers.values() if each is not None]

    def copy_buffers(self) -> Dict[Any, torch.Tensor]:
        """What a replica has for buffers that autograd may save: copies on ranks > 0, whose own become rank 0's.

        Of batch norm's, which are many, it saves none.
        """
        of_batch_norm = torch.nn.BatchNorm2d.forward
        parts = (part for part in self.parts if getattr(type(part), "forward", None) is not of_batch_norm)
        buffers = [each for part in parts for each in part._buffers.values() if each is not None]
        saved = [each for each in buffers if torch.is_grad_enabled() and not each.requires_grad]
        return {each: each.clone() if dist.get_rank() else each for each in saved}

    def layouts(self, copies: Mapping[Any, torch.Tensor]) -> List[Any]:
        """Sizes and strides of buffers behind a forward: observers' are empty until the first batch."""
        return [(each.shape, each.stride()) for each in (copies.get(each, each) for each in self.buffers())]

    def share(self, layouts: Sequence[Any] = (), beside: Sequence[torch.Tensor] = ()) -> None:
        """Behind a forward, or what backward runs of it: what rank 0's replica has written is everybody's."""
        with torch.inference_mode(False):  # a training goes on with what an evaluation leaves
            for parameter in self.written if dist.get_rank() else ():  # autograd may have saved it
                parameter.data = parameter.data.clone()
            for each, layout in zip(self.buffers(), layouts):
                if (each.shape, each.stride()) != layout:
                    each.data = torch.empty_strided(*layout, dtype=each.dtype, device=each.device)
        # batch norm writes into running statistics that are parameters, and their version stays
        statistics = [p for p in self.parameters if p.dim() == 1 and not p.requires_grad]
        share_tensors([*(self.written or statistics), *self.buffers(), *beside])


def learned_beside(state: ModuleState) -> List[torch.Tensor]:
    """What a module has beside parameters that wants a gradient: plain attributes (DARTS keeps its alphas so), buffers.

    Not what a hook computes anew before each forward, as weight_norm does.
    """
    return [
        each
        for part in (state.parts if torch.is_grad_enabled() else ())
        for each in (*part._buffers.values(), *vars(part).values())
        if type(each) is torch.Tensor and each.requires_grad
        if each.is_leaf or not part._forward_pre_hooks
    ]


def make_replica(state: ModuleState, copies: Mapping[Any, torch.Tensor], number: Any = None) -> Any:
    """A copy of a module with copies in place of what it learns; what forward assigns to it is gone with it.

    Buffers without a copy are the module's own: rank 0's replica changes them, as replica 0 of DataParallel does.
    Copies are plain tensors; but without gradients, the first replica (by number, else by rank) has the parameters.
    """
    replicas: Dict[Any, Any] = {part: copy_part(part) for part in state.parts}
    is_first = not (dist.get_rank() if number is None else number)
    has_parameters = is_first and all(copy is each for each, copy in copies.items())
    has_others = any(type(each) is torch.Tensor for each in copies)
    for part, replica in replicas.items():
        parameters = part._parameters.items()
        own = {name: copies[p] for name, p in parameters if p is not None}
        children = {name: replicas.get(child) for name, child in part._modules.items()}
        if isinstance(part, torch.jit.ScriptModule):  # what it has is in C++
            buffers = {name: copies.get(each, each) for name, each in part._buffers.items()}
            for name, each in {**children, **own, **buffers, "_former_parameters": own}.items():
                setattr(replica, name, each)
            continue
        replica._modules.update(children)
        replica._parameters.update({name: None for name, parameter in parameters if parameter is None})
        for held in (replica._buffers, vars(replica)) if has_others else ():
            tensors = {name: each for name, each in held.items() if type(each) is torch.Tensor}
            held.update({name: copies[each] for name, each in tensors.items() if each in copies})
        (replica._parameters if has_parameters else vars(replica)).update(own)
        vars(replica).update(_former_parameters=own)
    return replicas[state.parts[0]]


def copy_part(part: Any) -> Any:
    """What Module._replicate_for_data_parallel gives, without Module.__setattr__, which takes most of its time."""
    kind: Any = type(part)
    plain: Any = torch.nn.Module
    own_ways = kind._replicate_for_data_parallel, kind.__setattr__
    if own_ways != (plain._replicate_for_data_parallel, plain.__setattr__):
        return part._replicate_for_data_parallel()
    replica = part.__new__(kind)
    own = {"_buffers": part._buffers.copy(), "_modules": part._modules.copy(), "_parameters": {}}
    object.__setattr__(replica, "__dict__", {**vars(part), **own, "_is_replica": True})
    return replica


def buckets_of(parameters: Sequence[torch.Tensor]) -> List[List[torch.Tensor]]:
    """As DistributedDataParallel lays them: the last parameters are the first to have gradients."""
    last_first = parameters[::-1]
    assign: Any = dist._compute_bucket_assignment_by_size  # type: ignore[attr-defined]
    places = assign(last_first, [2**20, 25 * 2**20])[0] if last_first else []
    return [[last_first[place] for place in bucket] for bucket in places]


def run_at_once(node: Any) -> None:
    """Backward comes to a node as soon as its gradients are there, and not, as to what was made first, at the end."""
    if hasattr(node, "_set_sequence_nr"):  # since torch 2.1
        node._set_sequence_nr(2**62)


def as_in_a_thread() -> ContextManager[Any]:
    """Around replicas' forwards: what is around the model and does not reach DataParallel's replicas, in their threads.

    That is inference mode, and hooks for saved tensors, as a checkpoint's: nothing of a forward runs again in backward.
    """
    around = ExitStack()
    if torch.is_inference_mode_enabled():
        around.enter_context(torch.inference_mode(False))
        around.enter_context(torch.no_grad())
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("there are some"):
            return around
    except RuntimeError:
        around.enter_context(
            torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        )
        return around


def run_alone(module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
    """A forward on one device, to which DataParallel moves what it is given."""
    device = next((parameter.device for parameter in module.parameters()), None)
    inputs, kwargs = map_tensors(lambda tensor: tensor.to(device or tensor.device), (inputs, kwargs))
    return module(*inputs, **kwargs)


class GradientSums:
    """The parameters of one forward on their way into a replica, and their gradients on the way back, summed."""

    def __init__(self, state: ModuleState, wait: bool) -> None:
        trained = [parameter for parameter in state.parameters if parameter.requires_grad]
        sparse = {part.weight for part in state.parts if vars(part).get("sparse") is True}
        self.dense = [parameter for parameter in trained if parameter not in sparse]
        self.tables = [parameter for parameter in trained if parameter in sparse]
        self.state, self.wait = state, wait
        self.begin()

    def begin(self) -> None:
        """Behind a forward, or a backward: another backward may follow."""
        self.versions = [buffer._version for buffer in self.state.buffers()]

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        """What stands for each trained parameter, and for buffers, in the replica of this rank."""
        parameters = [*self.dense, *self.tables]
        copies = CopyToRanks.apply(self, *parameters) if parameters else ()
        buffers = self.state.copy_buffers()
        self.saves_buffers = bool(buffers)
        return {**buffers, **dict(zip(parameters, copies))}

    def finish(self, gradients: Sequence[Any]) -> List[torch.Tensor]:
        """The sums of all gradients; zeros where backward left parameters out, as DataParallel has them."""
        sums = [*self.sum_dense(gradients[: len(self.dense)])]
        sums += map(sum_sparse, gradients[len(self.dense) :], self.tables)
        # a checkpoint may have run its part of the forward again; in turns, rank 0 alone writes into what is its own
        versions = [buffer._version for buffer in self.state.buffers()]
        if self.state.written or self.saves_buffers or self.versions != versions:
            self.state.share()
        self.begin()
        return sums

    def sum_dense(self, gradients: Sequence[Any]) -> Sequence[torch.Tensor]:
        return sum_over_ranks(or_zeros(gradients, self.dense))


def or_zeros(gradients: Sequence[Any], parameters: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Dense gradients, as they can be summed: a sparse one is where there are gradients of gradients."""
    dense = (g.to_dense() if g is not None and g.is_sparse else g for g in gradients)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(dense, parameters)]


def sum_sparse(gradient: Any, table: torch.Tensor) -> torch.Tensor:
    """The sum of what ranks looked up in a table, in rank order, as DataParallel adds; dense if one of them is."""
    parts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, gradient, Rank.host)
    own = [part.to(table.device) for part in parts if part is not None]
    own = own if all(part.is_sparse for part in own) else [part.to_dense() for part in own]
    return sum(own[1:], own[0]) if own else torch.zeros_like(table).to_sparse()


def sum_over_ranks(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """What all ranks have, summed: in one message for each type of number, on the host and on the device."""
    sums = [*tensors]
    kinds = [(tensor.dtype, tensor.device) for tensor in tensors]
    for kind in dict.fromkeys(kinds):
        places = [place for place, each in enumerate(kinds) if each == kind]
        message = torch.cat([tensors[place].reshape(-1) for place in places])
        dist.all_reduce(message, group=group_of(message))
        for place, part in zip(places, message.split([tensors[place].numel() for place in places])):
            sums[place] = part.view_as(tensors[place])
    return sums


class SumOverRanks(torch.autograd.Function):
    """The sums over the ranks of what each of them has. CopyToRanks is its gradient, and the other way round."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        return tuple(each.clone() for each in sum_over_ranks(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(None, *gradients)


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold; their gradients are summed over the ranks.

    Of parameters, GradientSums does it: it is made before the forward, so its backward runs last.
    """

    @staticmethod
    def forward(ctx: Any, sums: Any, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.tensors = sums, tensors
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.sums is not None and not torch.is_grad_enabled():
            return (None, *ctx.sums.finish(gradients))
        return (None, *SumOverRanks.apply(*or_zeros(gradients, ctx.tensors)))


class OwnRows:
    """Which rows of a batch this rank computes: DataParallel's chunk of its number, of so many as there are replicas.

    A rank that has none computes the first chunk, whose outputs have the shapes of the others', and keeps no row of it.
    """

    def __init__(self, state: ModuleState, has_any: bool, replicas: int, dim: int = 0) -> None:
        self.state, self.versions = state, [parameter._version for parameter in state.parameters]
        self.device = state.parameters[0].device if state.parameters else None
        self.replicas, self.dim = min(replicas, dist.get_world_size()), dim
        self.has_any = has_any and dist.get_rank() < replicas or dist.get_rank() == 0
        self.in_place: List[Any] = []  # first rows of which DataParallel makes no copy, with their versions
        self.outputs: List[torch.Tensor] = []  # of this rank
        self.writes_data = False  # of which no version tells

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        chunks, rank = tensor.chunk(self.replicas, self.dim), dist.get_rank()
        self.has_any = self.has_any and rank < len(chunks)
        own = chunks[rank if rank < len(chunks) else 0]
        is_copied = rank > 0 or own.requires_grad and torch.is_grad_enabled()
        own = (own if is_copied else own.detach()).to(self.device or tensor.device, copy=is_copied)
        if own.device == tensor.device and not chunks[0].is_inference():  # one that is has no version
            self.in_place.append((chunks[0], chunks[0]._version))
        return own

    def settle(
        self, tree: Any, drew: List[int], copies: Mapping[Any, Any], way_back: Callable[[Any], List[bool]]
    ) -> Tuple[Any, Any]:
        """What the first replica drew and wrote is everybody's now.

        Gives the ranks' numbers of rows of each output, and what `way_back` says of each on the ranks.
        """
        shapes = map_tensors(self.keep, tree, object)  # of a dict: for which keys, in which order
        form = zlib.crc32(repr(shapes).encode())
        counts = [output.shape[self.dim] for output in self.outputs]
        ways = [way for output in self.outputs for way in way_back(output)]
        wrote_weights = self.writes_data or self.versions != [each._version for each in self.state.parameters]
        wrote_rows = any(first._version != version for first, version in self.in_place)
        layouts = self.state.layouts(copies)
        own = [form, wrote_rows, wrote_weights, hash(tuple(layouts)), *drew, *counts, *ways]
        forms, rows_written, weights_written, hashes, *others = zip(*exchange_numbers(own))  # of all ranks
        if len({*forms}) > 1:
            reason = "outputs of other shapes are not gathered (pad_packed_sequence: total_length)"
            raise RuntimeError(f"{reason}, nor dicts in another order")
        go_on_behind([of_ranks[0] for of_ranks in others[: len(drew)]])
        self.state.written = self.state.parameters if any(weights_written) else ()
        if len({*hashes}) > 1:  # a bank grew by more rows on some ranks
            layouts = tell_all(layouts)
        self.state.share(layouts, [first for first, _ in self.in_place if rows_written[0]])
        del others[: len(drew)]
        return others[: len(counts)], others[len(counts) :]

    def keep(self, output: Any) -> Any:
        """Keep this rank's rows of an output. DataParallel cannot gather numbers, arrays and most objects."""
        if isinstance(output, torch.Tensor):
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            self.outputs.append(rows if self.has_any else rows.narrow(self.dim, 0, 0))
            return (*rows.transpose(0, self.dim).shape[1:],)
        if output is not None and not isinstance(output, str):
            raise TypeError(f"outputs are gathered as tensors; a forward gives a {type(output).__name__}")
        return type(output).__name__


def gather_rows(rows: torch.Tensor, counts: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of all ranks along a dimension, in rank order; counts are the numbers of rows of all ranks."""
    rows = rows.transpose(0, dim)
    padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
    padded[: len(rows)] = rows
    parts = [part[:count].transpose(0, dim) for part, count in zip(gather_tensors(padded), counts)]
    return torch.cat(parts, dim)


class JoinRows(torch.autograd.Function):
    """The rows of all ranks. All ranks compute the same with them, so a rank's gradient is that of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: Sequence[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return gather_rows(rows, counts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (whole,) = CopyToRanks.apply(None, gradient)
        return whole.split(ctx.counts, ctx.dim)[dist.get_rank()], None, None


class AnyDataParallel(torch.nn.Module):
    """What takes DataParallel's place, whichever it is."""

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
        if together():
            share_tensors([*module.parameters(), *module.buffers()])
        # of one that comes out of a file
        torch.nn.DataParallel.__setstate__ = AnyDataParallel.take_place  # type: ignore[method-assign]
        if "stands_for_data_parallel" in vars(type(self)):
            AnyDataParallel.of_program = type(self)
            # scripts ask for it: `type(net).__name__`, `"DataParallel" in str(type(net))`
            type(self).__name__ = type(self).__qualname__ = "DataParallel"
            type(self).__module__ = torch.nn.DataParallel.__module__

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for, which takes its place where it is read, or copied."""
        if type(self) is not AnyDataParallel.of_program:
            return super().__reduce_ex__(protocol)
        first = torch.device("cuda", self.device_ids[0]) if self.device_ids else None
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, {**vars(self), "src_device_obj": first}  # type: ignore[attr-defined]

    def take_place(self: Any, state: Any) -> None:
        if type(self) is torch.nn.DataParallel:
            self.__class__ = AnyDataParallel.of_program
        torch.nn.Module.__setstate__(self, state)


def run_own_replica(
    wrapper: Any, rows: OwnRows, copies: Mapping[Any, torch.Tensor], batch: Any
) -> Tuple[Any, List[int]]:
    """What this rank's replica gives for its rows of a batch, and what it draws."""
    inputs, kwargs = map_tensors(rows.take, batch)
    replica = make_replica(rows.state, copies)
    with replica_draws(rows.has_any) as drew:
        return wrapper.run_replica(replica, rows.has_any, inputs, kwargs), drew


def compute_own_rows(wrapper: Any, /, *inputs: Any, **kwargs: Any) -> Any:
    """The outputs of the whole batch, of which this rank computes its chunk."""
    if dist.get_world_size() == 1 or len(wrapper.device_ids) < 2 or not together():
        return run_alone(wrapper.module, inputs, kwargs)
    state = ModuleState(wrapper.module)
    rows = OwnRows(state, bool(inputs or kwargs), len(wrapper.device_ids), wrapper.dim)
    entered: List[torch.Tensor] = []
    if Rank.before_forward:
        Rank.before_forward(wrapper.module)

    def enter(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad and torch.is_grad_enabled():
            (tensor,) = CopyToRanks.apply(None, tensor)
            entered.append(tensor)
        return tensor

    batch = map_tensors(enter, (inputs, kwargs))
    learned = learned_beside(state)
    sums = wrapper.sums(state, wait=bool(learned or entered))
    copies = make_copies(sums, learned)
    with as_in_a_thread():
        tree, drew = wrapper.run_replicas(rows, copies, batch)
    trained = [copies[p] for p in (*sums.dense, *sums.tables)]
    alone = [[each] for each in (*entered, *(copies[each] for each in learned))]
    ties = [trained, *alone] if trained else alone
    counts, ways = rows.settle(tree, drew, copies, partial(comes_to, ties))
    sums.begin()
    for (place, (tie, *_)), of_ranks in zip(product(range(len(counts)), ties), ways):
        if any(of_ranks) and not all(of_ranks):
            refuse_reentrant(rows.outputs[place])
        if any(of_ranks) and not of_ranks[dist.get_rank()]:  # then backward comes there on all ranks
            rows.outputs[place] = rows.outputs[place] + tie.reshape(-1)[:0].abs().sum()
    whole = map(wrapper.join_rows, rows.outputs, counts, [wrapper.dim] * len(counts))
    return map_tensors(lambda output: next(whole), tree)


class WholeBatch(AnyDataParallel):
    """A model that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r, on a replica. Parameters and buffers are the same on all ranks (buffers are rank 0's, as
    DataParallel keeps its first replica's).
    """

    stands_for_data_parallel = True
    sums: Any = GradientSums
    join_rows: Any = JoinRows.apply
    run_replicas: Any = run_own_replica
    forward: Any = compute_own_rows

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return replica(*inputs, **kwargs)


def make_copies(sums: GradientSums, learned: Sequence[torch.Tensor]) -> Dict[Any, torch.Tensor]:
    """What stands for parameters, and what else is learned, in the replica of this rank.

    Themselves where there are no gradients, as in replica 0 of DataParallel: what is assigned to their .data stays.
    """
    parameters = sums.state.parameters
    if not torch.is_grad_enabled():
        return {p: p for p in parameters}
    copies: Dict[Any, torch.Tensor] = sums.copies()
    copies.update({p: p.view_as(p) for p in parameters if p not in copies})
    copies.update({each: CopyToRanks.apply(None, each)[0] for each in learned if each not in copies})
    return copies


def comes_to(ties: Sequence[Sequence[torch.Tensor]], output: torch.Tensor) -> List[bool]:
    """To which ties, each of tensors that autograd has from one place, a backward from an output comes."""
    if len(ties) < 2:
        return [output.requires_grad for _ in ties]
    nodes = nodes_behind(output)
    return [any(each.grad_fn in nodes for each in tie) for tie in ties]


def nodes_behind(output: torch.Tensor) -> Set[Any]:
    """What autograd has recorded of an output."""
    nodes: Set[Any] = set()
    ahead: List[Any] = [output.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            ahead += [each for each, _ in node.next_functions]
    return nodes


def refuse_reentrant(output: torch.Tensor) -> None:
    """Refuse a reentrant checkpoint where some chunks want no gradient: it sums by itself, on the others alone."""
    kinds = {node.name() for node in nodes_behind(output)}
    if any(has for (has,) in exchange_numbers(["CheckpointFunctionBackward" in kinds])):
        raise RuntimeError(
            "an output wants a gradient on some ranks: call checkpoint with use_reentrant=False"
        )


class OverlappingSums(GradientSums):
    """GradientSums that set out while backward runs, in DistributedDataParallel's buckets, in one order on all ranks.

    Unless something else that ranks exchange in backward could come between: sums of another forward, or what a wrapper
    has to wait for.
    """

    in_graphs: "WeakSet[OverlappingSums]" = WeakSet()

    def __init__(self, state: ModuleState, wait: bool) -> None:
        super().__init__(state, wait)
        self.buckets = buckets_of(self.dense)
        self.in_graphs.add(self)

    def begin(self) -> None:
        super().begin()
        self.messages: Dict[int, torch.Tensor] = {}  # gradients of a bucket, then their sums
        self.works: List[Any] = []

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        copies = super().copies()
        for number, bucket in enumerate(self.buckets):
            leaving = LeaveRank.apply(self, number, *(copies[parameter] for parameter in bucket))
            run_at_once(leaving[0].grad_fn)
            copies.update(zip(bucket, leaving))
        return copies

    def arrive(self, number: int, gradients: Sequence[torch.Tensor]) -> None:
        """Gradients of a bucket are there; its sum sets out once those before it have."""
        if number < len(self.works):
            raise RuntimeError("gradients came after their sum: call checkpoint with use_reentrant=False")
        message = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.messages[number] = self.messages[number] + message if number in self.messages else message
        if not self.wait and len(self.in_graphs) == 1:
            self.set_out()

    def set_out(self) -> None:
        while len(self.works) in self.messages:
            self.works.append(dist.all_reduce(self.messages[len(self.works)], async_op=True))

    def sum_dense(self, gradients: Sequence[Any]) -> Sequence[torch.Tensor]:
        sums: Dict[torch.Tensor, torch.Tensor] = {}
        for number, bucket in enumerate(self.buckets):
            if number not in self.messages:
                self.messages[number] = torch.cat([torch.zeros_like(p).reshape(-1) for p in bucket])
        self.set_out()
        for number, bucket in enumerate(self.buckets):
            self.works[number].wait()
            parts = self.messages[number].split([parameter.numel() for parameter in bucket])
            sums.update((parameter, part.view_as(parameter)) for part, parameter in zip(parts, bucket))
        self.in_graphs.discard(self)
        return [sums[parameter] for parameter in self.dense]


class LeaveRank(torch.autograd.Function):
    """Copies of a bucket's parameters; backward brings their gradients."""

    @staticmethod
    def forward(ctx: Any, sums: OverlappingSums, number: int, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.number = sums, number
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # there will be gradients of these: CopyToRanks sums them as functions
            return (None, None, *gradients)
        ctx.sums.arrive(ctx.number, gradients)
        return (None, None, *(None for _ in gradients))


class WholeBatchParallel(WholeBatch):
    """WholeBatch for a program that wraps one model: its gradients are summed while backward runs."""

    stands_for_data_parallel = True
    sums = OverlappingSums
