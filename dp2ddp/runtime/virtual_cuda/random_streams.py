"""The random streams of a CUDA program: the host's, and one for each device; and which functions draw from them.

The host's stream is torch's own default generator. A draw on a device is done by the CPU's kernel from the same default
generator, with the device's state in it for as long as the draw takes (3 microseconds on top).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy
import torch
import torch.nn.functional as F

T = TypeVar("T")
_FAR = 1000  # between the seeds of two ranks; there are fewer devices
_PlainGenerator = torch._C.Generator
default_generator_lock = threading.RLock()
"""Held while a device's state is in torch's default generator: who sets its state meanwhile would set the device's."""


class _GeneratorType(type(_PlainGenerator)):  # type: ignore[misc]  # has a metaclass of its own
    """isinstance(x, torch.Generator) also holds for torch's own generators, e.g. torch.default_generator."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _PlainGenerator)


class VirtualGenerator(_PlainGenerator, metaclass=_GeneratorType):
    """torch.Generator that accepts device="cuda"; its numbers are the CPU generator's."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> VirtualGenerator:
        generator = super().__new__(cls, device="cpu")  # type: ignore[call-arg]  # not in the stub
        generator._device = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # an attribute in the stub, a getter in C
        return self._device

    def clone_state(self) -> VirtualGenerator:
        clone = type(self)(self._device)
        clone.set_state(self.get_state())
        return clone


class RandomStreams:
    """One generator a device, and the rule that a draw on a device advances only that device's."""

    def __init__(self, count: int) -> None:
        # A seed that was set before the stage was holds for all, as torch.manual_seed does (torch/cuda/random.py:112).
        self.generators = tuple(VirtualGenerator(torch.device("cuda", index)) for index in range(count))
        self.seed_all(torch.initial_seed())

    def seed_all(self, seed: int) -> None:
        """Seed every generator with the same number."""
        for generator in self.generators:
            generator.manual_seed(seed)

    def begin_apart(self, seed: int, rank: int) -> None:
        """Seed each device for itself, as CUDA's default generators begin where the script sets no seed.

        Device i of the process with DataParallel and rank i's own device begin at the same seed, so that a script
        without a seed can be compared; any other device of a rank begins somewhere else.
        """
        for index, generator in enumerate(self.generators):
            generator.manual_seed(seed + index + (_FAR * rank if index != rank else 0))

    def draw(self, place: int, function: Callable[..., T], args: Any, kwargs: Any) -> T:
        """Call `function` with device `place`'s stream as the default one; Any: arguments of a torch function."""
        default, own = torch.default_generator, self.generators[place]
        with default_generator_lock:
            host = default.get_state()
            default.set_state(own.get_state())
            try:
                return function(*args, **kwargs)
            finally:
                own.set_state(default.get_state())
                default.set_state(host)


# aten operators tagged nondeterministic_seeded, without those that only exist below the Python interface
# (tests/runtime/virtual_cuda/test_random_streams.py holds this against the tags).
_OPERATORS = """
    _sample_dirichlet _standard_gamma alpha_dropout bernoulli binomial cauchy dropout exponential
    feature_alpha_dropout feature_dropout geometric gru log_normal lstm multinomial native_dropout
    normal poisson rand rand_like randint randint_like randn randn_like random randperm rnn_relu
    rnn_tanh rrelu rrelu_with_noise scaled_dot_product_attention uniform
"""

# Python functions of torch that draw inside; a torch function mode sees only the outermost of nested calls.
_COMPOSITES = """
    dropout1d dropout2d dropout3d fractional_max_pool2d fractional_max_pool2d_with_indices
    fractional_max_pool3d fractional_max_pool3d_with_indices gumbel_softmax multi_head_attention_forward
    pca_lowrank svd_lowrank lobpcg _transformer_encoder_layer_fwd _native_multi_head_attention
"""

_INITIALISERS = """
    uniform_ normal_ trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_
    orthogonal_ sparse_
"""

DRAWING_NAMES = frozenset((_OPERATORS + _COMPOSITES).split())


def drawing_functions() -> frozenset[Callable[..., Any]]:
    """Every callable that a mode may be handed for one of these names; Any: they are torch's own."""
    initialisers = (getattr(torch.nn.init, name) for name in _INITIALISERS.split())
    return frozenset([*functions_called(DRAWING_NAMES, "{}", "{}_"), *initialisers])


def functions_called(names: Iterable[str], *spellings: str) -> Iterator[Callable[..., Any]]:
    """What torch has under these names, in each spelling ("{}_": in place), wherever a mode may be handed it."""
    owners = (torch, torch.Tensor, F, torch._C._nn, torch._C._VariableFunctions, torch._C._TensorBase)
    for name in (spelling.format(name) for name in names for spelling in spellings):
        yield from (getattr(owner, name) for owner in owners if hasattr(owner, name))


# ---- the host's streams: of Python, torch and numpy

HostStates = tuple[Any, Any, Any]


def host_states() -> HostStates:
    """Where they stand."""
    return random.getstate(), torch.default_generator.get_state(), numpy.random.get_state()


def set_host_states(states: HostStates) -> None:
    """Put them where they stood."""
    random.setstate(states[0])
    torch.default_generator.set_state(states[1])
    numpy.random.set_state(states[2])


def seed_host(seed: int) -> None:
    """Begin all of them anew."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
