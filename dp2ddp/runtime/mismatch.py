"""torch's own errors for tensors that are at different places.

Only functions that are known to need all their tensors at one place are checked: a false alarm would stop a
script that runs on real devices, a missed one only hides an error that the real devices will show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .places import HOST, device_at, has_dimensions, place_of

_NAMES = """
    add sub subtract mul multiply div divide true_divide rsub pow fmod remainder atan2 maximum minimum
    fmax fmin lerp addcmul addcdiv eq ne lt le gt ge logical_and logical_or logical_xor where dist mm
    bmm matmul mv dot addmm addmv addbmm baddbmm einsum cat concat stack hstack vstack kron outer cdist
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm
    layer_norm group_norm embedding cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss
    kl_div binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity cosine_embedding_loss
    triplet_margin_loss margin_ranking_loss pairwise_distance prelu grid_sample
"""


def check_same_place(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> None:
    """Raise what torch raises if tensors with dimensions are at two different known places."""
    if function in _GETITEM:
        _check_index(tensors)
    elif function in _STRICT:
        _check_all(tensors)


def _check_all(tensors: Sequence[torch.Tensor]) -> None:
    """c10 TensorIterator.cpp and ATen/core/op_registration/adaption.cpp."""
    places = list(dict.fromkeys(place for place in map(_place_that_counts, tensors) if place is not None))
    if len(places) > 1:
        first, second = sorted(places[:2], key=_is_host)  # torch names the CUDA device first
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{device_at(first)} and {device_at(second)}!"
        )


def _is_host(place: int) -> bool:
    return place == HOST


def _check_index(tensors: Sequence[torch.Tensor]) -> None:
    """aten/src/ATen/native/TensorAdvancedIndexing.cpp: an index on the CPU goes with any tensor."""
    place = place_of(tensors[0])
    for index in tensors[1:]:
        where = _place_that_counts(index)
        if place is not None and where is not None and where not in (place, HOST):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({device_at(place)})"
            )


def _place_that_counts(tensor: torch.Tensor) -> int | None:
    place = place_of(tensor)
    return place if place is not None and has_dimensions(tensor) else None


def _strict() -> Iterator[Callable[..., Any]]:
    owners = (torch, torch.Tensor, F, torch._C._nn, torch._C._VariableFunctions)
    for name in _NAMES.split():
        for spelling in (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__"):
            yield from (getattr(owner, spelling) for owner in owners if hasattr(owner, spelling))


_STRICT = frozenset(_strict())
_GETITEM = frozenset({torch.Tensor.__getitem__})
