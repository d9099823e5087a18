"""Which torch functions draw random numbers, so that the draw can be made from the right stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

# aten operators tagged nondeterministic_seeded, without those that only exist below the Python interface
# (tests/runtime/test_random_functions.py holds this against the tags).
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
    return frozenset(_drawing_functions())


def _drawing_functions() -> Iterator[Callable[..., Any]]:
    owners = (torch, torch.Tensor, F, torch._C._nn, torch._C._VariableFunctions, torch._C._TensorBase)
    for name in DRAWING_NAMES:
        for spelling in (name, f"{name}_"):
            yield from (getattr(owner, spelling) for owner in owners if hasattr(owner, spelling))
    yield from (getattr(torch.nn.init, name) for name in _INITIALISERS.split())
