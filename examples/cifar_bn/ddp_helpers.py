"""What scripts need that dp2ddp converted (edition 7ad638fc): yours now, it needs torch alone."""

import atexit
import functools
import gc
import io
import multiprocessing
import os
import pickle
import random
import stat
import sys
import threading
import traceback
import weakref
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory


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


def own_rank() -> int:
    return dist.get_rank() if Rank.process else int(os.environ.get("RANK", 0))


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


def ask_rank0(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function on rank 0 alone, once all ranks have come here; every rank gets its answer, or its error."""
    if not together():
        return function(*args, **kwargs)
    if Rank.make_whole:
        args, kwargs = Rank.make_whole((args, kwargs))
    dist.barrier(Rank.host)  # a rank may still ask for the folder that rank 0 is about to make
    answer: Any = None
    errors: List[Exception] = []
    if dist.get_rank() == 0:
        try:
            with ranks_apart():
                answer = function(*args, **kwargs)
        except Exception as error:
            errors.append(error)
    answer, errors, streams = tell_all((answer, errors, host_streams()))
    if dist.get_rank():  # what has drawn on rank 0 has drawn for all; a thread may go on drawing there
        set_host_streams(streams)
    if errors:
        raise errors.pop()  # it holds this frame, which must not hold it
    return answer


def run_on_rank0(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call a function on rank 0 alone, for what it does; its end, or its error, is that of all."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    if any(isinstance(each, (io.BytesIO, io.StringIO)) for each in (*args, *kwargs.values())):
        run(*args, **kwargs)  # into memory: each rank has its own
    elif together() or own_rank() == 0:
        ask_rank0(run, *args, **kwargs)


class Packer(ForkingPickler):
    """Packs a batch as the worker did that made it; but large memory is lent, for private pages of each rank."""

    small = 2**16  # bytes of memory that are copied into the message
    lends: Any = None  # where all ranks are on one machine, and it runs Linux: they try it once
    memories: Dict[int, Any] = {}  # rank 0's last batch
    mapping: Any = None  # done when all ranks have mapped it

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, torch.UntypedStorage):
            return NotImplemented
        first = self.memories.setdefault(thing.data_ptr(), thing)
        if first is not thing:  # until torch 2.1, each view of one memory has its own name for it
            return torch.UntypedStorage.cpu, (first,)  # where it is
        if self.lends and thing.nbytes() > self.small:
            descriptor, size = thing._share_fd_cpu_()  # a worker's batch is shared memory already
            return torch.UntypedStorage.from_file, (f"/proc/{os.getpid()}/fd/{descriptor}", False, size)
        content = torch.empty(0, dtype=torch.uint8).set_(thing).numpy()
        return functools.partial(torch.UntypedStorage.from_buffer, dtype=torch.uint8), (content,)


def pack_next(batches: Iterator[Any]) -> Tuple[bytes, List[Exception]]:
    """The next batch as a message, or an error."""
    let_go(Packer.mapping, Packer.memories)
    Packer.memories = {}
    try:
        with ranks_apart():
            return bytes(Packer.dumps(next(batches))), []
    except Exception as error:
        return b"", [error]


def let_go(mapping: Any, memories: Dict[int, Any]) -> None:
    """What was lent for a batch may go when all ranks have mapped it."""
    if mapping is not None:
        mapping.wait()
    memories.clear()


def try_to_lend() -> None:
    """Find out whether all ranks can map what rank 0 has; else the whole batch goes into the message."""
    Packer.lends, is_mapped = True, False
    probe = torch.frombuffer(bytearray(os.urandom(Packer.small + 1)), dtype=torch.uint8)
    with suppress(OSError, RuntimeError):
        message, probe = ask_rank0(lambda: (bytes(Packer.dumps(probe)), probe.clone()))
        is_mapped = torch.equal(pickle.loads(message), probe)
    Packer.lends = all(number for (number,) in exchange_numbers([is_mapped]))


def save_on_rank0(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save on rank 0 alone; a run that is killed meanwhile leaves the old file."""
    run_on_rank0(save_completely, obj, f, *args, **kwargs)


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a file beside, which then takes the place of the old one, but not of a link or a pipe."""
    is_path = isinstance(f, (str, os.PathLike))
    old = os.lstat(f) if is_path and os.path.lexists(f) else None
    if not is_path or old and not (stat.S_ISREG(old.st_mode) and old.st_nlink == 1):
        torch.save(obj, f, *args, **kwargs)
        return
    beside = os.path.splitext(f)[0] + ".unfinished"  # torch writes the name into the file, without its end
    torch.save(obj, beside, *args, **kwargs)
    if old:
        os.chmod(beside, stat.S_IMODE(old.st_mode))
    os.replace(beside, f)


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


def run_alone(module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
    """A forward on one device, to which DataParallel moves what it is given."""
    device = next((parameter.device for parameter in module.parameters()), None)
    inputs, kwargs = map_tensors(lambda tensor: tensor.to(device or tensor.device), (inputs, kwargs))
    return module(*inputs, **kwargs)


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


class WholeBatchDDP(DistributedDataParallel):
    """DistributedDataParallel that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r of the batch, on a replica. All ranks compute the loss of the whole batch. Buffers are
    rank 0's, as DataParallel's are its first replica's.
    """

    def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None) -> None:
        init_distributed()  # a script that was not converted may import what was
        # scripts ask for it: `type(net).__name__`, `"DataParallel" in str(type(net))`
        WholeBatchDDP.__name__ = WholeBatchDDP.__qualname__ = "DataParallel"
        WholeBatchDDP.__module__ = torch.nn.DataParallel.__module__
        super().__init__(module.cuda() if torch.cuda.is_available() else module)
        self.broadcast_buffers = False  # before forwards: they are shared behind them
        self.replicas = dist.get_world_size() if device_ids is None else len(device_ids)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.buckets = buckets_of(self.trained)
        self.may_sum = False  # DistributedDataParallel does it once behind each forward
        atexit.register(drop_reducer, weakref.ref(self))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.replicas < 2 or dist.get_world_size() == 1 or not together():
            return run_alone(self.module, inputs, kwargs)
        state = ModuleState(self.module)
        rows = OwnRows(state, bool(inputs or kwargs), self.replicas)

        def take(tensor: torch.Tensor) -> torch.Tensor:
            refuse(tensor.requires_grad and torch.is_grad_enabled(), "an input needs a gradient")
            return rows.take(tensor)

        inputs, kwargs = map_tensors(take, (inputs, kwargs))
        with replica_draws(rows.has_any) as drew:
            tree, copies = super().forward(state, *inputs, **kwargs)
        counts, wants = rows.settle(tree, drew, copies, lambda output: [output.requires_grad])
        whole = iter(GatherRows.apply(self, counts, wants, *rows.outputs, *self.trained))
        return map_tensors(lambda output: next(whole), tree)

    def check(self, state: ModuleState) -> None:
        """Refuse what DistributedDataParallel does not see."""
        trained = [p for p in state.parameters if p.requires_grad]
        others = [*map(id, trained)] != [*map(id, self.trained)]
        refuse(others, "other parameters are trained than at the wrap")
        hooked = any(each._backward_hooks for each in (*trained, *state.parts))
        refuse(hooked, "a parameter or a layer has a backward hook")
        held = [each for part in state.parts for each in (*part._buffers.values(), *vars(part).values())]
        learned = any(type(each) is torch.Tensor and each.requires_grad and each.is_leaf for each in held)
        refuse(learned, "a layer has a tensor that is no parameter, and wants a gradient")
        self.may_sum = True

    def _run_ddp_forward(self, state: ModuleState, *inputs: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self.check(state)
        copies = state.copy_buffers()
        for bucket in self.buckets:
            copies.update(zip(bucket, CopyBucket.apply(*bucket)))
            run_at_once(copies[bucket[0]].grad_fn)  # gradients are summed while backward goes on
        copies.update({p: p.view_as(p) for p in state.parameters if p not in copies})
        return make_replica(state, copies)(*inputs, **kwargs), copies

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse(True, "the model is copied, or saved as a whole")


class CopyBucket(torch.autograd.Function):
    """Copies of a bucket's parameters: one step of backward, where each for itself would have one."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> Any:
        ctx.came = False
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse(ctx.came, "a part of the forward has a backward of its own, as a reentrant checkpoint has")
        ctx.came = True
        return gradients


class GatherRows(torch.autograd.Function):
    """A rank's rows of all outputs to those of all ranks.

    All ranks compute the loss of the whole batch, so the gradient of a rank's rows is its part of DataParallel's sum.
    DistributedDataParallel averages, also what is in .grad already: it needs world_size times as much. Parameters that
    a replica leaves out get None here, and zeros from DistributedDataParallel, as under DataParallel.
    """

    @staticmethod
    def forward(ctx: Any, model: WholeBatchDDP, counts: Any, wants: Any, *tensors: torch.Tensor) -> Any:
        ctx.model, ctx.counts = model, counts
        ctx.set_materialize_grads(False)
        whole = [*map(gather_rows, tensors, counts)]
        ctx.mark_non_differentiable(*(each for each, of_ranks in zip(whole, wants) if not any(of_ranks)))
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        trained, may_sum, ctx.model.may_sum = ctx.model.trained, ctx.model.may_sum, False
        refuse(torch.is_grad_enabled(), "gradients of gradients are wanted")
        refuse(not may_sum, "a step has two forwards, or two backwards")
        ends = [node for node, _ in ctx.next_functions[-len(trained) :]]
        sums_all = all(map(torch._C._will_engine_execute_node, ends))  # or torch says what it is not made for
        refuse(not sums_all, "autograd.grad or backward(inputs=...) asks for some gradients")

        def own_part(whole: Any, counts: Any) -> Any:
            return None if whole is None else whole.split(counts)[dist.get_rank()] * dist.get_world_size()

        return (None, None, None, *map(own_part, gradients, ctx.counts), *(None for _ in trained))


def drop_reducer(model: Any) -> None:
    """At exit, before the process group ends: with gloo, a reducer that outlives it may abort the process."""
    if model() is not None:
        vars(model()).update(reducer=None, logger=None)


def refuse(condition: bool, reason: str) -> None:
    if condition:
        raise RuntimeError(f"{reason}: convert anew with --import, and take WholeBatchParallel")


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without any, all ranks load alike.

    With a sampler or a generator of your own, take Rank0SamplerLoader.
    """

    goes_ahead = True  # where a batch is to be pinned, it is asked for early

    def __iter__(self) -> Any:
        if self.num_workers == 0 or not together():
            return super().__iter__()
        requested, self.pin_memory = self.pin_memory, False  # each rank pins its own copy
        pins = requested and self.goes_ahead and torch.cuda.is_available()
        try:
            return self.rank0_batches(super().__iter__, pins)
        finally:
            self.pin_memory = requested

    def rank0_batches(self, start: Callable[[], Any], pins: bool) -> "Rank0Batches":
        kinds = {type(self.sampler).__name__, type(self._index_sampler).__name__}
        # they draw when a loop begins, and keep nothing
        of_torch = {"RandomSampler", "SequentialSampler", "BatchSampler", "_InfiniteConstantSampler"}
        if self.generator or kinds - of_torch:
            raise RuntimeError("Rank0Loader: a sampler or generator of your own: convert the script again")
        return Rank0Batches(start, pins and not self.persistent_workers)  # which would go on a batch further


class Rank0Batches:
    """Rank 0's batches, on all ranks. Each is asked for early if it is to be pinned: by a thread, as in DataLoader."""

    def __init__(self, start: Callable[[], Any], pins: bool) -> None:
        if Packer.lends is None:
            try_to_lend()
        self.batches: List[Any] = []
        self.early: Any = None
        self.pinning: Any = None
        if pins:
            own_device = (torch.cuda.current_device(),)
            self.pinning = ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=own_device)
        ask_rank0(lambda: self.batches.append(start()))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not together():
            raise RuntimeError("all ranks must ask for batches at once, each in its main thread")
        coming = self.early or self.receive()
        self.early = None
        batch = coming.result()
        if self.pinning:
            self.early = self.receive()
        return batch

    def receive(self) -> "Future[Any]":
        message, errors = tell_all(None if dist.get_rank() else pack_next(self.batches[0]))
        coming: Future[Any] = Future()
        if errors:
            coming.set_exception(errors.pop())
            return coming
        batch = pickle.loads(message)
        Packer.mapping = dist.barrier(Rank.host, async_op=True)
        if self.pinning:
            pinned = self.pinning.submit(pin_memory, batch)
            self.pinning.submit(let_go, Packer.mapping, Packer.memories)
            return pinned
        coming.set_result(batch)
        return coming
