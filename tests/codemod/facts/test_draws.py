"""The table of what draws random numbers, against Python, numpy and torch themselves: each function is called."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional, init

from dp2ddp.codemod.facts.draws import (
    DRAWING_METHODS,
    IN_PLACE_DRAWS,
    NO_DRAWS,
    SAMPLING_METHODS,
    TORCH_DRAWS,
    draws,
    host_stream,
)


def streams() -> tuple[bytes, ...]:
    """Where the streams stand that a script can seed."""
    position = np.random.get_state()
    return repr(random.getstate()).encode(), repr(position).encode(), torch.get_rng_state().numpy().tobytes()


ARGUMENTS = [(), (1,), (0.5,), ([1, 2, 3],), (1, 2), (0.5, 1.0), (1, 2, 3), (0.1, 0.2, 0.3), (5, 0.5), (3, [0.2, 0.8]),
             ([1.0], [[1.0]]), (4, 0.5, 2), ([1, 2, 3], 2), (2.0,)]  # fmt: skip


def moves(function: Callable[..., Any]) -> bool:
    """Whether a call, with any of some arguments, leaves a stream elsewhere."""
    for given in ARGUMENTS:
        before = streams()
        try:
            function(*given)
        except (TypeError, ValueError, IndexError, NotImplementedError):
            continue
        if streams() != before:
            return True
    return False


def functions(module: Any) -> list[str]:
    found = [name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name))]
    return [
        name for name in found if name not in ("test", "seed", "set_state", "setstate", "set_bit_generator")
    ]


@pytest.mark.parametrize("name", functions(random))
def test_functions_of_random(name: str) -> None:
    other = inspect.isclass(getattr(random, name)) or name.startswith("_")
    assert (host_stream(f"random.{name}") == "random") == (not other and moves(getattr(random, name)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", functions(np.random))
def test_functions_of_numpy(name: str) -> None:
    other = inspect.isclass(getattr(np.random, name))
    assert (host_stream(f"numpy.random.{name}") is not None) == (
        not other and moves(getattr(np.random, name))
    )


@pytest.mark.parametrize("name", sorted(NO_DRAWS))
def test_what_draws_nothing_is_known_to_a_module(name: str) -> None:
    assert any(hasattr(one, name) for one in (random, np.random, random.Random, np.random.Generator))


ONES = torch.ones(3, 3)
TORCH: dict[str, Callable[[], Any]] = {
    "torch.rand": lambda: torch.rand(2),
    "torch.randn": lambda: torch.randn(2),
    "torch.randint": lambda: torch.randint(9, (2,)),
    "torch.randperm": lambda: torch.randperm(5),
    "torch.normal": lambda: torch.normal(0.0, 1.0, (2,)),
    "torch.rand_like": lambda: torch.rand_like(ONES),
    "torch.randn_like": lambda: torch.randn_like(ONES),
    "torch.randint_like": lambda: torch.randint_like(ONES, 9),
    "torch.bernoulli": lambda: torch.bernoulli(ONES / 2),
    "torch.multinomial": lambda: torch.multinomial(ONES, 1),
    "torch.poisson": lambda: torch.poisson(ONES),
    "torch.binomial": lambda: torch.binomial(ONES * 9, ONES / 2),
    **{
        f"torch.{name}": lambda name=name: getattr(torch, name)(ONES.clone().unsqueeze(0), 0.5, True)
        for name in (
            "dropout",
            "dropout_",
            "alpha_dropout",
            "alpha_dropout_",
            "feature_dropout",
            "native_dropout",
        )
    },
    **{
        f"torch.{name}": lambda name=name: getattr(torch, name)(torch.ones(1, 2, 3, 3), 0.5, True)
        for name in ("feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")
    },
    **{
        f"torch.{name}": lambda name=name: getattr(torch, name)(-ONES, 0.1, 0.9, True)
        for name in ("rrelu", "rrelu_")
    },
    **{
        f"torch.nn.functional.{name}": lambda name=name: getattr(functional, name)(
            torch.ones(1, 2, 3, 3), 0.5, True
        )
        for name in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")
    },
    "torch.nn.functional.dropout1d": lambda: functional.dropout1d(torch.ones(1, 2, 3)),
    "torch.nn.functional.dropout3d": lambda: functional.dropout3d(torch.ones(1, 2, 3, 3, 3)),
    "torch.nn.functional.gumbel_softmax": lambda: functional.gumbel_softmax(ONES),
    "torch.nn.functional.rrelu": lambda: functional.rrelu(-ONES, training=True),
    "torch.nn.functional.rrelu_": lambda: functional.rrelu_(-ONES, training=True),
    "torch.nn.functional.scaled_dot_product_attention": lambda: functional.scaled_dot_product_attention(
        ONES[None], ONES[None], ONES[None], dropout_p=0.5
    ),
    **{
        f"torch.nn.functional.fractional_max_pool{n}d{more}": lambda n=n, more=more: getattr(
            functional, f"fractional_max_pool{n}d{more}"
        )(torch.ones(1, 1, *[4] * n), 2, output_size=2)
        for n in (2, 3)
        for more in ("", "_with_indices")
    },
    **{
        f"torch.nn.init.{name}": lambda name=name: getattr(init, name)(
            torch.empty(3, 3), *([0.5] if name == "sparse_" else [])
        )
        for name in dir(init)
        if name.endswith("_") and not name.startswith("_") and name != "constant_" and name != "dirac_"
    },
}


@pytest.mark.parametrize("name", TORCH)
def test_functions_of_torch(name: str) -> None:
    before = streams()
    TORCH[name]()
    assert (streams() != before) == draws(name)


def test_every_function_of_the_table_is_called() -> None:
    assert TORCH.keys() >= TORCH_DRAWS


def test_torch_has_no_others() -> None:
    """Each operator that torch marks as seeded, where it is a public function or a method of a tensor."""
    marked = set()
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and not base.startswith("_"):
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            marked |= {base} if torch.Tag.nondeterministic_seeded in operator.tags else set()
    layers = {
        "gru",
        "lstm",
        "rnn_relu",
        "rnn_tanh",
        "miopen_rnn",
    }  # their dropout, between layers: modules have it
    for base in sorted(marked - layers):
        if callable(getattr(torch, base, None)):
            assert draws(f"torch.{base}"), base
        elif hasattr(torch.Tensor, base):
            assert base in DRAWING_METHODS, base


@pytest.mark.parametrize("method", sorted(IN_PLACE_DRAWS))
def test_methods_of_tensors(method: str) -> None:
    before = streams()
    getattr(ONES.clone(), method)(*([0.5] if method in ("bernoulli_", "geometric_") else []))
    assert streams() != before


@pytest.mark.parametrize("method", sorted(SAMPLING_METHODS - {"sample_n"}))
def test_methods_of_distributions(method: str) -> None:
    before = streams()
    getattr(torch.distributions.Normal(0.0, 1.0), method)()
    assert streams() != before


@pytest.mark.parametrize(
    "name", ["torch.zeros", "torch.manual_seed", "torch.random.fork_rng", "numpy.random.default_rng"]
)
def test_others_draw_nothing(name: str) -> None:
    assert not draws(name)
