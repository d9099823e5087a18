"""One replica of a module, and the random numbers it draws: torch/nn/parallel/replicate.py for one rank."""

import contextlib
import ctypes
import functools
import operator
import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .buffers import GuardedBuffers, held_buffers, tensors_of
from .compiled import bind_to_replicas, compiled_replica, is_compiled
from .half import is_of_library
from .process import JOINED


@dataclass(frozen=True)
class Contents:
    """What a module is made of, each thing once; looked up once for a forward pass."""

    parts: list[torch.nn.Module]
    parameters: list[torch.nn.Parameter]
    kept: list[
        torch.Tensor
    ]  # buffers of scripted modules, which make new objects for them whenever they are asked

    @property
    def buffers(self) -> list[torch.Tensor]:
        """Each time anew: what holds a buffer is taken for somebody who wants to see its changes."""
        return tensors_of(map(held_buffers, self.holders))

    @property
    def holders(self) -> list[torch.nn.Module]:
        """The parts that have buffers; each time anew, too, since calls of parts may register some."""
        return [part for part in self.parts if part._buffers]

    @property
    def is_training(self) -> bool:
        """Whether any part is in training mode."""
        return any(part.training for part in self.parts)

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        for tensor in self.parameters or self.buffers:
            return tensor.device
        return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")

    @functools.cached_property
    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that want a gradient."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    @functools.cached_property
    def is_compiled(self) -> bool:
        """Whether any part is what torch.compile has made of one."""
        return any(map(is_compiled, self.parts))

    def versions(self) -> tuple[list[int], list[int]]:
        """Numbers that grow when a buffer, or a parameter, is changed in place."""
        version = operator.attrgetter("_version")
        return [*map(version, self.buffers)], [*map(version, self.parameters)]


def contents_of(module: torch.nn.Module) -> Contents:
    """What a module is made of."""
    parts = parts_of(module)
    parameters = {
        id(parameter): parameter
        for part in parts
        for parameter in part._parameters.values()
        if parameter is not None
    }
    kinds = {kind for kind in set(map(type, parts)) if issubclass(kind, torch.jit.ScriptModule)}
    scripted = [part for part in parts if type(part) in kinds] if kinds else []
    return Contents(parts, list(parameters.values()), tensors_of(map(held_buffers, scripted)))


def parts_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """list(module.modules()), which takes four times as long."""
    modules: dict[int, torch.nn.Module] = {}
    waiting: list[torch.nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in modules:
            modules[id(part)] = part
            if part._modules:
                waiting.extend(reversed(part._modules.values()))
    return list(modules.values())


def replica_of(
    module: torch.nn.Module,
    stand_ins: Mapping[int, torch.Tensor],
    parts: "Sequence[torch.nn.Module] | None" = None,
) -> torch.nn.Module:
    """A shallow copy of a module that computes with other tensors in place of some of its own, by their id().

    What forward assigns to self stays with the copy, as with DataParallel's replicas.
    """
    parts = parts_of(module) if parts is None else parts
    replicas = {id(part): empty_replica(part) for part in parts if not is_compiled(part)}
    for part in parts[::-1]:
        if is_compiled(part):
            replicas[id(part)] = compiled_replica(part, replicas[id(part._orig_mod)])
    for part in parts:
        fill_replica(part, replicas, stand_ins)
        bind_to_replicas(part, replicas)
    return replicas[id(module)]


def empty_replica(part: torch.nn.Module) -> torch.nn.Module:
    """A copy of a part without what it holds."""
    kind: Any = type(part)
    if not is_copied_plainly(kind):
        return part._replicate_for_data_parallel()
    replica: torch.nn.Module = object.__new__(kind)
    vars(replica).update(vars(part))
    vars(replica).update(_parameters={}, _buffers={}, _modules={}, _is_replica=True)
    return replica


def fill_replica(
    part: torch.nn.Module, replicas: Mapping[int, torch.nn.Module], stand_ins: Mapping[int, torch.Tensor]
) -> None:
    """Let a replica hold replicas of a part's parts, and tensors. Parameters are plain attributes, as replicas have."""
    kind: Any = type(part)
    replica = replicas[id(part)]
    own = vars(replica)
    plain = is_copied_plainly(kind)
    for name, child in part._modules.items():
        if plain:
            own["_modules"][name] = None if child is None else replicas[id(child)]
        elif child is not None:
            setattr(replica, name, replicas[id(child)])
    for name, parameter in part._parameters.items():
        if parameter is None:
            replica._parameters[name] = None
        elif plain and not hasattr(kind, name):
            own[name] = stand_ins.get(id(parameter), parameter)
        else:
            setattr(replica, name, stand_ins.get(id(parameter), parameter))
    for name, buffer in held_buffers(part).items():
        if plain:
            own["_buffers"][name] = None if buffer is None else stand_ins.get(id(buffer), buffer)
        elif buffer is not None:
            setattr(replica, name, stand_ins.get(id(buffer), buffer))


def are_plain_layers(parts: Sequence[torch.nn.Module], have_copies: bool) -> bool:
    """Whether parts run as their classes have it, without hooks, and can compute with other parameters if they must."""
    if any(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts):
        return False
    if not all(map(is_known_layer, set(map(type, parts)))) or any(map(renews_rows, parts)):
        return False
    return not have_copies or are_copied_plainly(parts)


@functools.cache
def is_known_layer(kind: type) -> bool:
    """Whether all that a class is made of is the project's, or is one of torch's or torchvision's that only compute."""
    return all(
        base in (object, torch.nn.Module)
        or base.__module__.startswith(("torch.nn.modules.", "torchvision.models.", "torchvision.ops."))
        and not base.__module__.startswith("torchvision.models.detection")
        and not issubclass(base, (torch.nn.SyncBatchNorm, torch.nn.modules.lazy.LazyModuleMixin))
        or not is_of_library(base.__module__)
        for base in kind.__mro__
    )


def renews_rows(part: torch.nn.Module) -> bool:
    """Whether a table of vectors changes those that it looks up: with max_norm."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return isinstance(part, tables) and part.max_norm is not None


@contextlib.contextmanager
def replaced_parameters(
    parts: Sequence[torch.nn.Module],
    holders: Sequence[torch.nn.Module],
    stand_ins: Mapping[int, torch.Tensor],
) -> Iterator[None]:
    """A block in which the module itself computes with other tensors in place of parameters, by their id().

    Its running averages are its own, also while rank 0's are newer: it only writes them, and rank 0's come later.
    """
    computing = [part for part in parts if part._parameters] if stand_ins else []
    averaging = [part for part in holders if type(part._buffers) is GuardedBuffers]
    parameters, buffers = [part._parameters for part in computing], [part._buffers for part in averaging]
    for part in computing:
        vars(part)["_parameters"] = {
            name: parameter if parameter is None else stand_ins.get(id(parameter), parameter)
            for name, parameter in part._parameters.items()
        }
    for part in averaging:
        vars(part)["_buffers"] = held_buffers(part)
    try:
        yield
    finally:
        for part, own in zip(computing, parameters, strict=True):
            vars(part)["_parameters"] = own
        for part, guarded in zip(averaging, buffers, strict=True):
            vars(part)["_buffers"] = guarded


def are_copied_plainly(parts: Sequence[torch.nn.Module]) -> bool:
    """Whether all parts are nothing but their attributes, and none is compiled."""
    return all(map(is_copied_plainly, set(map(type, parts)))) and not any(map(is_compiled, parts))


@functools.cache
def is_copied_plainly(kind: Any) -> bool:
    """Whether a module of this class is nothing but its attributes, and setting one does nothing else."""
    usual = torch.nn.Module
    return (
        kind._replicate_for_data_parallel is usual._replicate_for_data_parallel
        and kind.__setattr__ is usual.__setattr__
        and kind.__new__ is usual.__new__
        and not issubclass(kind, torch.jit.ScriptModule)
    )


class DeviceStream:
    """The random stream that a device other than the first has under DataParallel.

    torch.manual_seed seeds all devices alike, and from there on each goes its own way: the script draws from
    the first device only, the replica on another device is the only one to draw from that. Here the script
    draws from the same stream on every rank, so on ranks > 0 what the model draws needs a stream of its own.
    Where nobody has set a seed, each device begins at a random one of its own, and so did each rank before it joined.
    It starts anew when the script sets another seed. The same seed once more is noticed only if the script
    has drawn nothing between setting it and calling the model.
    """

    def __init__(self) -> None:
        self.begun = False
        self.seed: int | None = None
        self.state = torch.empty(0)
        # A state that the script has set itself: no seed, which would be for all.
        self.placed = torch.empty(0)
        self.first: tuple[Any, torch.Tensor] = (
            None,
            torch.empty(0),
        )  # where a generator with some seed begins

    @contextlib.contextmanager
    def drawn_from(self, generator: torch.Generator) -> Iterator[None]:
        """A block in which a generator gives this stream's numbers."""
        self.settle(generator)
        generator.set_state(self.state)
        try:
            yield
        finally:
            self.state = generator.get_state()

    def settle(self, generator: torch.Generator) -> None:
        """Begin anew if the script has seeded the generator since: another seed, or nothing drawn since."""
        if not self.begun:
            self.begin(generator)
        now, seed = generator.get_state(), generator.initial_seed()
        if self.first[0] != (generator.device, seed):
            made = torch.Generator(generator.device).manual_seed(seed).get_state()
            self.first = (generator.device, seed), made
        fresh = self.first[1]
        if not torch.equal(now, self.placed) and (seed != self.seed or torch.equal(now, fresh)):
            self.seed, self.state = seed, fresh

    def begin(self, generator: torch.Generator) -> None:
        """Go on from where the device's generator stood before the rank joined, if no seed has been set."""
        self.begun = True
        own, shared = JOINED.get("cuda" if generator.device.type == "cuda" else "torch", (None, None))
        if own is None or shared is None:
            return
        seeds = [seed_of(state, generator.device) for state in (own, shared)]
        if seeds[0] != seeds[1] == generator.initial_seed():
            self.seed, self.state, self.placed = seeds[1], own, shared

    def place(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Set the script's own state, which is that of the first device, and leave this stream as it is."""
        self.settle(generator)
        generator.set_state(state)
        self.seed, self.placed = generator.initial_seed(), generator.get_state()


def seed_of(state: torch.Tensor, device: torch.device) -> int:
    """The seed that a generator with this state began at."""
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator.initial_seed()


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that a module on this device draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device()]
    return torch.default_generator


def changed_streams(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the random streams that something was drawn from since."""
    return {name: state for name, state in now.items() if not same_state(state, before.get(name))}


def same_state(state: Any, other: Any) -> bool:
    """Whether two states of a random stream are the same."""
    return torch.equal(state, other) if isinstance(state, torch.Tensor) else bool(state == other)


def stream_marks(names: "Collection[str]" = ("random", "torch", "cuda", "numpy")) -> dict[str, Any]:
    """Something of each random stream that is another as soon as something is drawn; of torch's, the state itself.

    Python and numpy take 250 microseconds to tell their states, which is more than a small layer takes.
    """
    marks: dict[str, Any] = {}
    if "random" in names:
        marks["random"] = mark_of_random(vars(random)["_inst"])
    if "torch" in names:
        marks["torch"] = torch.get_rng_state()
    if "cuda" in names and torch.cuda.is_initialized():
        marks["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in names and "numpy" in sys.modules:
        marks["numpy"] = mark_of_numpy(sys.modules["numpy"].random.mtrand._rand)
    return marks


def device_mark(device: torch.device) -> dict[str, Any]:
    """stream_marks() of a device's own stream alone."""
    return stream_marks(("cuda" if device.type == "cuda" else "torch",))


def mark_of_random(generator: Any) -> Any:
    """What a random.Random's draw changes: its memory, where that holds the state, and the number gauss() keeps."""
    if not bytes_show_draws("random"):
        return generator.getstate()
    return bytes_of_object(generator), generator.gauss_next


def mark_of_numpy(generator: Any) -> Any:
    """What a draw of numpy's RandomState changes: its memory (with the number randn() keeps), its bit generator's."""
    if not bytes_show_draws("numpy"):
        name, keys, *rest = generator.get_state()
        return name, keys.tobytes(), *rest
    return bytes_of_object(generator), bytes_of_object(generator._bit_generator)


def bytes_of_object(thing: Any) -> bytes:
    """What an object of C consists of, without the count of references to it."""
    head = object.__basicsize__
    return ctypes.string_at(id(thing) + head, type(thing).__basicsize__ - head)


@functools.cache
def bytes_show_draws(name: str) -> bool:
    """Whether a generator's own memory holds its state, so that it is another after each draw: tried on one."""
    try:
        if name == "random":
            generator = random.Random(1)
            looks = [bytes_of_object(generator)]
            for _ in range(3):
                generator.random()
                looks.append(bytes_of_object(generator))
        else:
            other = sys.modules["numpy"].random.RandomState(1)
            looks = [bytes_of_object(other) + bytes_of_object(other._bit_generator)]
            for _ in range(3):
                other.standard_normal()
                looks.append(bytes_of_object(other) + bytes_of_object(other._bit_generator))
    except Exception:
        return False
    return len(set(looks)) == len(looks)
