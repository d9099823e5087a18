"""The table of what only computes, held against Python and torch: each thing is there, and changes nothing."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from dp2ddp.codemod.facts.computing import COMPUTING, DECORATORS, METHODS, computes
from dp2ddp.codemod.facts.mutating import mutates

OWNERS = (torch.Tensor, str, list, dict, torch.nn.LSTM, torch.autograd.function.FunctionCtx)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_one_of_tensors_texts_collections_or_layers(name: str) -> None:
    assert any(hasattr(owner, name[1:]) for owner in OWNERS)
    assert not mutates(name[1:])


def callable_without_arguments(name: str) -> bool:
    function = getattr(torch.Tensor, name[1:], None)
    if function is None:
        return False
    try:
        function(torch.ones(2, 2))
    except (TypeError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(filter(callable_without_arguments, METHODS)))
def test_a_method_of_tensors_changes_neither_its_tensor_nor_a_stream_of_the_host(name: str) -> None:
    tensor = torch.arange(4.0).reshape(2, 2) / 4
    before, version, shape = tensor.clone(), tensor._version, tensor.shape
    state = torch.get_rng_state()
    getattr(tensor, name[1:])()
    assert torch.equal(tensor, before)
    assert (tensor._version, tensor.shape) == (version, shape)
    assert name == ".bernoulli" or torch.equal(
        torch.get_rng_state(), state
    )  # which draws on the tensor's device


@pytest.mark.parametrize(
    "name", sorted(name for name in COMPUTING | DECORATORS if not name.startswith("einops."))
)
def test_a_function_is_where_the_table_says(name: str) -> None:
    module, _, last = name.rpartition(".")
    found: object = importlib.import_module(module)
    assert callable(getattr(found, last))


def test_functions_of_torch_that_only_compute_have_no_state_to_set() -> None:
    names = [
        name for name in dir(torch) if inspect.isroutine(getattr(torch, name)) and computes(f"torch.{name}")
    ]
    assert {"cat", "matmul", "rand_like"} <= {*names}
    for name in names:
        assert not name.startswith(("set_", "_", "use_", "manual_"))
        assert not any(word in name for word in ("seed", "rng_state", "save", "load", "fork"))
        assert name != "compile"
