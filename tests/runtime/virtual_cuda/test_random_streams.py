"""The host and each device draw from streams of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dp2ddp.runtime.virtual_cuda.random_streams import DRAWING_NAMES

from .conftest import Install

# Tagged operators that no Python function of torch is called by: fused kernels and their backwards, and functional
# forms that only the compiler makes.
BELOW_PYTHON = frozenset(
    """
    _cudnn_attention_backward _cudnn_attention_forward _cudnn_attention_forward_no_dropout_inplace
    _cudnn_init_dropout_state _cudnn_rnn _efficient_attention_forward _fill_mem_eff_dropout_mask_
    _flash_attention_forward _flash_attention_forward_no_dropout_inplace _fused_dropout _fused_sdp_choice _lstm_mps
    _nested_tensor_softmax_with_shape _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_fused_attention_overrideable _triton_scaled_dot_attention miopen_rnn normal_functional
    rrelu_with_noise_functional
    """.split()  # noqa: SIM905  a list of 26 lines would be no easier to read
)


def tagged_operators() -> set[str]:
    names = set()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        overload = getattr(getattr(torch.ops.aten, name, None), schema.overload_name or "default", None)
        if space == "aten" and overload and torch.Tag.nondeterministic_seeded in overload.tags:
            names.add(name)
    return names


def test_every_operator_that_draws_is_known() -> None:
    unknown = {name for name in tagged_operators() - BELOW_PYTHON if name.rstrip("_") not in DRAWING_NAMES}
    assert not unknown


def test_torch_manual_seed_seeds_all_streams_alike(virtual: Install) -> None:
    """torch/cuda/random.py:112"""
    virtual(3)
    torch.manual_seed(5)
    draws = [torch.randn(4, device=device).cpu() for device in ("cuda:0", "cuda:1", "cuda:2", "cpu")]
    assert all(torch.equal(draw, draws[0]) for draw in draws)


def test_a_seed_set_before_the_stage_counts(virtual: Install) -> None:
    torch.manual_seed(11)
    expected = torch.randn(4)
    torch.manual_seed(11)
    virtual(2)
    assert torch.equal(torch.randn(4, device="cuda:1").cpu(), expected)


def test_where_no_seed_is_set_each_device_begins_for_itself_and_where_its_rank_does(virtual: Install) -> None:
    streams = virtual(3).streams
    streams.begin_apart(50, rank=0)
    one_process = [generator.initial_seed() for generator in streams.generators]
    assert len(set(one_process)) == 3
    for rank in (1, 2):
        streams.begin_apart(50, rank)
        own = [generator.initial_seed() for generator in streams.generators]
        assert own[rank] == one_process[rank]
        assert len({*own, *one_process}) == 5


def attention(device: Any) -> torch.Tensor:
    q = torch.ones(1, 2, 4, 8, device=device)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


DRAWS: dict[str, Callable[[Any], Any]] = {
    "randn": lambda device: torch.randn(3, device=device),
    "rand_like": lambda device: torch.rand_like(torch.ones(3, device=device)),
    "randint": lambda device: torch.randint(0, 100, (3,), device=device),
    "randperm": lambda device: torch.randperm(9, device=device),
    "normal with tensors": lambda device: torch.normal(torch.zeros(3, device=device), 1.0),
    "normal_": lambda device: torch.empty(3, device=device).normal_(),
    "bernoulli": lambda device: torch.bernoulli(torch.full((9,), 0.5, device=device)),
    "multinomial": lambda device: torch.multinomial(torch.ones(9, device=device), 3),
    "exponential_": lambda device: torch.empty(3, device=device).exponential_(),
    "poisson": lambda device: torch.poisson(torch.full((9,), 4.0, device=device)),
    "dropout": lambda device: F.dropout(torch.ones(9, device=device)),
    "nn.Dropout2d": lambda device: nn.Dropout2d()(torch.ones(2, 9, 1, 1, device=device)),
    "alpha_dropout": lambda device: F.alpha_dropout(torch.ones(9, device=device), training=True),
    "rrelu": lambda device: F.rrelu(-torch.ones(3, device=device), training=True),
    "gumbel_softmax": lambda device: F.gumbel_softmax(torch.ones(3, device=device)),
    "fractional_max_pool2d": lambda device: nn.FractionalMaxPool2d(2, 3)(
        torch.ones(1, 1, 9, 9, device=device)
    ),
    "lstm with dropout": lambda device: nn.LSTM(2, 3, 2, dropout=0.5).to(device)(
        torch.ones(4, 1, 2, device=device)
    ),
    "attention": attention,
    "init": lambda device: nn.init.xavier_uniform_(torch.empty(3, 3, device=device)),
    "init of a module there": lambda device: nn.Linear(3, 3, device=device),
    "distribution": lambda device: torch.distributions.Normal(torch.zeros(2, device=device), 1.0).sample(),
    "gamma": lambda device: torch.distributions.Gamma(torch.ones(2, device=device), 1.0).sample(),
    "svd_lowrank": lambda device: torch.svd_lowrank(torch.ones(9, 9, device=device), q=2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_advances_its_own_stream_only(virtual: Install, name: str) -> None:
    virtual(3)
    if name == "lstm with dropout":  # its weights are drawn on the host first
        nn.LSTM(2, 3, 2)
    host, before = torch.get_rng_state(), torch.cuda.get_rng_state_all()
    DRAWS[name]("cuda:1")
    after = torch.cuda.get_rng_state_all()
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert torch.equal(host, torch.get_rng_state()) or name == "lstm with dropout"


def test_draws_on_the_host_leave_the_devices_alone(virtual: Install) -> None:
    virtual(2)
    before = torch.cuda.get_rng_state_all()
    F.dropout(torch.ones(9))
    torch.randperm(4)
    assert all(torch.equal(a, b) for a, b in zip(before, torch.cuda.get_rng_state_all(), strict=True))


def test_streams_are_saved_and_restored(virtual: Install) -> None:
    torch.manual_seed(0)
    virtual(2)
    state = torch.cuda.get_rng_state("cuda:1")
    first = torch.rand(3, device=1)
    torch.cuda.set_rng_state(state, "cuda:1")
    assert torch.equal(first, torch.rand(3, device=1))
    with torch.random.fork_rng(devices=[0, 1]):
        torch.rand(3, device=0)
    torch.cuda.manual_seed(3)
    assert (torch.cuda.initial_seed(), torch.cuda.default_generators[1].initial_seed() == 3) == (3, False)
    torch.cuda.manual_seed_all(4)
    assert [generator.initial_seed() for generator in torch.cuda.default_generators] == [4, 4]


def test_an_explicit_generator_is_used_as_it_is(virtual: Install) -> None:
    virtual(2)
    states = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    generator = torch.Generator(device="cuda:1").manual_seed(2)
    drawn = torch.randn(3, device="cuda:1", generator=generator)
    assert generator.device == torch.device("cuda:1")
    assert torch.equal(drawn.cpu(), torch.randn(3, generator=torch.Generator().manual_seed(2)))
    assert all(
        torch.equal(a, b)
        for a, b in zip(states, [torch.get_rng_state(), *torch.cuda.get_rng_state_all()], strict=True)
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_the_same_mask_again(virtual: Install, reentrant: bool) -> None:
    virtual(2)
    x = torch.ones(64, device="cuda:1", requires_grad=True)
    output = checkpoint(lambda value: F.dropout(value * 1.0), x, use_reentrant=reentrant)
    output.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, output.detach())
