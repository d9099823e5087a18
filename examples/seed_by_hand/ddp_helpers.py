"""What scripts need that dp2ddp converted (edition 7ad638fc): yours now, it needs torch alone."""

import atexit
import gc
import io
import multiprocessing
import os
import pickle
import random
import sys
import threading
import traceback
from contextlib import ExitStack, contextmanager, redirect_stdout
from datetime import timedelta
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

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


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(each)


def refuse_hidden(tree: Any) -> None:
    """Refuse tensors that need gradients inside of other objects, in which nobody finds them."""
    outside = (torch.nn.Module, ModuleType, FunctionType, MethodType, type)
    seen, pending = {id(tensor): tensor for tensor in tensors_of(tree)}, [tree]
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, outside):
            continue
        seen[id(each)] = each
        if not isinstance(each, torch.Tensor):
            pending += gc.get_referents(each)
        elif each.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                "tensors that need gradients are in an object: give them in tuples, lists or dicts"
            )


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


def raise_on_all(error: Optional[Exception]) -> None:
    """What a replica has raised on this rank, or on another."""
    failed = [number for (number,) in exchange_numbers([error is not None])]
    if any(failed):
        error_of_all = tell_all(error, failed.index(1))
        raise error or error_of_all


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
        dist.broadcast(whole, owner, group_of(whole))
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
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        if Rank.before_forward:
            Rank.before_forward(network)
        sums = GradientSums(ModuleState(network), wait=True)
        copies = make_copies(sums, learned_beside(sums.state))
    replicas = [make_replica(sums.state, copies, number) for number, _ in enumerate(devices)]
    for number, replica in enumerate(replicas):
        replica.of_all_ranks = number, copies, sums
        if number != dist.get_rank() and dist.get_world_size() > 1 and together():
            replica.forward = partial(refuse_forward, number)
    return replicas


def refuse_forward(number: int, /, *inputs: Any, **kwargs: Any) -> None:
    """The forward of another rank's replica."""
    raise RuntimeError(f"replica {number} runs on rank {number}: call it by parallel_apply")


class Broadcasts:
    """What was broadcast by hand and is still in use, in the order of the calls."""

    copies: "List[weakref.ref[torch.Tensor]]" = []  # their gradients are summed over the ranks
    others: "List[weakref.ref[torch.Tensor]]" = []  # the first replica may change these in place


def in_use(tensors: "List[weakref.ref[torch.Tensor]]") -> List[torch.Tensor]:
    tensors[:] = [each for each in tensors if each() is not None]
    return [tensor for tensor in (each() for each in tensors) if tensor is not None]


class Running:
    """The replicas of the call of parallel_apply that goes on."""

    numbers: List[int] = []
    exchange_messages = False  # while they run, so that nobody may wait for one that has failed


def apply_own(modules: Any, place: int, has_rows: bool, given: Any) -> Any:
    """Run the replica of this rank: its outputs or its error, what it draws, and what it prints.

    A rank without rows runs the first replica, for its messages and its way back, and keeps nothing.
    """
    outputs, error = None, None
    if not has_rows:
        vars(modules[place]).pop("forward", None)
    with replica_draws(has_rows) as drew, redirect_stdout(io.StringIO()) as printed:
        try:
            rows, named = given(place)
            outputs = modules[place](*rows, **named)
            refuse_hidden(outputs)
        except Exception as raised:
            if Running.exchange_messages:
                raise
            error = raised if has_rows else None
    return outputs, error, drew, printed.getvalue() if has_rows else ""


def parallel_apply_on_ranks(
    modules: Any,
    inputs: Any,
    kwargs_tup: Any = None,
    devices: Any = None,
    run_replicas: Any = apply_own,
    may_write: bool = False,
) -> List[Any]:
    """torch.nn.parallel.parallel_apply: all ranks get all outputs."""
    inputs = [each if isinstance(each, (tuple, list)) else (each,) for each in inputs]
    options = [each or {} for each in kwargs_tup or [None] * len(modules)]
    if dist.get_world_size() == 1 or not together():
        return [module(*rows, **named) for module, rows, named in zip(modules, inputs, options)]
    numbers = [getattr(module, "of_all_ranks", (place,))[0] for place, module in enumerate(modules)]
    if max(numbers) >= dist.get_world_size():
        raise RuntimeError(f"{max(numbers) + 1} replicas need as many ranks")
    origins = [module.of_all_ranks[1:] for module in modules if hasattr(module, "of_all_ranks")]
    copies_of: Dict[GradientSums, Any] = {sums: copies for copies, sums in origins}
    has_rows, Running.numbers = dist.get_rank() in numbers, numbers
    place = numbers.index(dist.get_rank()) if has_rows else 0
    tensors = [
        tensor for tensor in tensors_of((inputs, options)) if tensor.requires_grad and torch.is_grad_enabled()
    ]
    entered = dict(zip(map(id, tensors), CopyToRanks.apply(None, *tensors))) if tensors else {}

    def given(place: int) -> Any:
        def own(tensor: torch.Tensor) -> torch.Tensor:  # other replicas' rows lie elsewhere than the batch
            return entered.get(id(tensor), tensor.clone() if place else tensor)

        refuse_hidden((inputs[place], options[place]))
        return map_tensors(own, (inputs[place], options[place]))

    parameters = [p for sums in copies_of for p in sums.state.parameters]
    first = [each for each in tensors_of((inputs[0], options[0])) if not each.is_inference()]
    versions, before = versions_of(parameters), versions_of(first)
    with as_in_a_thread():
        outputs, error, drew, text = run_replicas(modules, place, has_rows, given)
    writes_own = [versions != versions_of(parameters), before != versions_of(first)]
    effects = exchange_numbers([*writes_own, text != "", *drew])
    go_on_behind(effects[0][3:])
    if any(each[2] for each in effects):
        texts: List[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(texts, text, Rank.host)
        print(*texts, sep="", end="")
    raise_on_all(error)
    writes_weights = may_write or any(each[0] for each in effects)
    for sums, copies in copies_of.items():
        sums.state.written = sums.state.parameters if writes_weights else ()
        sums.state.share(sums.state.layouts(copies))
        sums.begin()
    share_tensors([*(first if effects[0][1] else []), *in_use(Broadcasts.others)])
    ties = [
        *(copy for copies in copies_of.values() for copy in copies.values()),
        *entered.values(),
        *in_use(Broadcasts.copies),
    ]
    if not has_rows:
        ties += [tensor for tensor in tensors_of(outputs) if tensor.requires_grad]
    return [share_tree(outputs if owner == dist.get_rank() else None, owner, ties) for owner in numbers]


def versions_of(tensors: Sequence[torch.Tensor]) -> List[int]:
    """Numbers that change where something is written into them."""
    return [each._version for each in tensors]


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
