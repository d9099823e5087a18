"""One replica of a module, and the random numbers it draws: torch/nn/parallel/replicate.py for one rank."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .compiled import bind_to_replicas, compiled_replica, is_compiled
from .process import JOINED


def replica_of(module: torch.nn.Module, stand_ins: Mapping[torch.Tensor, torch.Tensor]) -> torch.nn.Module:
    """A shallow copy of a module that computes with other tensors in place of its parameters and buffers.

    What forward assigns to self stays with the copy, as with DataParallel's replicas.
    """
    parts = list(module.modules())
    replicas: dict[Any, Any] = {
        part: part._replicate_for_data_parallel() for part in parts if not is_compiled(part)
    }
    for part in filter(is_compiled, reversed(parts)):
        replicas[part] = compiled_replica(part, replicas[part._orig_mod])
    for part, replica in replicas.items():
        bind_to_replicas(part, replicas)
        for name, child in part._modules.items():
            if child is not None:
                setattr(replica, name, replicas[child])
        for name, parameter in part._parameters.items():
            if parameter is None:
                replica._parameters[name] = None
            else:
                setattr(replica, name, stand_ins[parameter])
        for name, buffer in part._buffers.items():
            if buffer is not None:
                setattr(replica, name, stand_ins[buffer])
    return replicas[module]


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
        self.placed = torch.empty(
            0
        )  # a state that the script has set itself: no seed, which would be for all

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
        fresh = torch.Generator(generator.device).manual_seed(seed).get_state()
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


def same_state(one: Any, other: Any) -> bool:
    """Whether two states of a random stream are the same."""
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)
