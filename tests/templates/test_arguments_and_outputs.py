"""Which rows a replica gets, and how outputs are joined: against torch's own scatter and gather, on the CPU."""

from __future__ import annotations

import collections
import inspect
import sys
from typing import Any

import pytest
import torch
import torch.nn.parallel.scatter_gather
from dp2ddp.templates.arguments import chunk_sizes, rank_sizes, split_arguments
from dp2ddp.templates.outputs import TensorMeta, describe_output, gather_outputs, joinable_shapes

torch_rules = sys.modules["torch.nn.parallel.scatter_gather"]
Point = collections.namedtuple("Point", "x y")


# It cut the longer lists; the helpers refuse them with every version.
REFUSED_BY_TORCH = pytest.mark.skipif(
    "strict=True" not in inspect.getsource(torch_rules.gather), reason="an older torch"
)


class ScatterOnTheCpu:
    @staticmethod
    def apply(devices: Any, sizes: Any, dim: int, tensor: torch.Tensor) -> Any:
        return tensor.chunk(len(devices), dim)


class GatherOnTheCpu:
    @staticmethod
    def apply(device: Any, dim: int, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat([t.view(1) if t.dim() == 0 else t for t in tensors], dim)


@pytest.fixture(autouse=True)
def torch_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_rules, "Scatter", ScatterOnTheCpu)
    monkeypatch.setattr(torch_rules, "Gather", GatherOnTheCpu)


def x(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


ARGUMENTS = [
    pytest.param((x(8, 2),), {}, id="one tensor"),
    pytest.param((x(5, 2),), {}, id="fewer chunks than four"),
    pytest.param((x(0, 2),), {}, id="no rows"),
    pytest.param((x(8, 2), x(1, 3)), {}, id="lengths differ: rows are dropped"),
    pytest.param((x(8, 2), x(2, 8)), {}, id="hidden state with its layers first"),
    pytest.param((x(9), "mode", 3, None), {}, id="plain values to all"),
    pytest.param(([x(6), [x(6, 2), "a"]], (x(6), 1)), {}, id="nested"),
    pytest.param((Point(x(6), x(6, 2)),), {}, id="namedtuple"),
    pytest.param(({"a": x(7), "b": 2, "c": {}},), {}, id="dict"),
    pytest.param((collections.OrderedDict(a=x(7)),), {}, id="ordered dict"),
    pytest.param(([], (), {}), {}, id="empty containers"),
    pytest.param((), {}, id="nothing"),
    pytest.param((), {"a": x(5)}, id="keywords only"),
    pytest.param((x(5),), {"a": x(5, 2), "b": "text"}, id="both"),
    pytest.param((x(5),), {"mode": "loss"}, id="plain keyword and fewer chunks: replicas without inputs"),
]


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize(("inputs", "kwargs"), ARGUMENTS)
def test_every_replica_gets_what_torch_gives_it(inputs: Any, kwargs: Any, world: int) -> None:
    theirs, their_kwargs = torch_rules.scatter_kwargs(inputs, kwargs, list(range(world)), 0)
    if not theirs and not their_kwargs:
        theirs, their_kwargs = ((),), ({},)
    for rank in range(world):

        def take(tensor: torch.Tensor, rank: int = rank) -> tuple[int, torch.Tensor]:
            sizes = rank_sizes(tensor, world, 0)
            return len(chunk_sizes(tensor, world, 0)), tensor.narrow(0, sum(sizes[:rank]), sizes[rank])

        part = split_arguments(inputs, kwargs, rank, world, take)
        assert part.replicas == len(theirs)
        if rank < part.replicas:
            assert same((part.inputs, part.kwargs), (theirs[rank], their_kwargs[rank]))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("rows", range(0, 20))
def test_sizes_are_torch_chunks_with_zeros_behind(rows: int, world: int) -> None:
    sizes = rank_sizes(x(rows, 1), world, 0)
    assert len(sizes) == world
    assert [s for s in sizes if s] == [len(c) for c in x(rows, 1).chunk(world) if len(c)]


def test_a_number_as_tensor_cannot_be_split() -> None:
    with pytest.raises(RuntimeError, match="at least a 1-dimensional tensor"):
        chunk_sizes(torch.tensor(1.0), 2, 0)


def test_keywords_with_fewer_chunks_than_inputs_are_an_error_as_in_parallel_apply() -> None:
    with pytest.raises(AssertionError, match="number of keyword arguments 1"):
        split_arguments((x(4),), {"a": x(1)}, 0, 4, lambda t: (len(chunk_sizes(t, 4, 0)), t))


OUTPUTS = [
    pytest.param([x(2, 3), x(1, 3)], id="tensors"),
    pytest.param([(x(2), None), (x(3), None)], id="tuple with None"),
    pytest.param([{"a": x(2), "b": [x(2, 2)]}, {"a": x(1), "b": [x(1, 2)]}], id="dict with list"),
    pytest.param([Point(x(2), x(2)), Point(x(1), x(1))], id="namedtuple"),
    pytest.param([collections.OrderedDict(a=x(2)), collections.OrderedDict(a=x(1))], id="ordered dict"),
    pytest.param([None, x(2)], id="the first replica says None"),
    pytest.param([torch.tensor(1.0), torch.tensor(2.0)], id="numbers become a vector"),
    pytest.param([[], []], id="empty lists"),
    pytest.param([0.5, 0.5], id="floats"),
    pytest.param([(x(2), 3), (x(1), 3)], id="an int within"),
    pytest.param([{"a": x(2)}, {}], id="dicts of different length"),
    pytest.param([{"a": x(2)}, {"b": x(2)}], id="dicts with different keys"),
    pytest.param([[x(2)], [x(2), x(2)]], id="lists of different length", marks=REFUSED_BY_TORCH),
]


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_outputs_are_joined_as_torch_joins_them(outputs: list[Any]) -> None:
    tensors: list[list[torch.Tensor]] = [[] for _ in outputs]
    described = [describe_output(out, own) for out, own in zip(outputs, tensors, strict=True)]

    def join(metas: Any) -> torch.Tensor:
        shapes = joinable_shapes(metas, 0)
        parts = zip(tensors, metas, shapes, strict=True)
        return torch.cat([own[meta.place].view(shape) for own, meta, shape in parts])

    wanted, found = (
        outcome(lambda: torch_rules.gather(outputs, "cpu")),
        outcome(lambda: gather_outputs(described, join)),
    )
    assert same(found, wanted) if not isinstance(wanted, type) else found is wanted


def outcome(function: Any) -> Any:
    """What a function returns, or the type of what it raises."""
    try:
        return function()
    except Exception as error:
        return type(error)


def test_numbers_are_joined_with_torchs_warning() -> None:
    metas = [TensorMeta(0, torch.Size([]), torch.float32, False)] * 3
    with pytest.warns(UserWarning, match="unsqueeze and return a vector"):
        assert joinable_shapes(metas, 0) == [torch.Size([1])] * 3


@pytest.mark.parametrize("shape", [(3, 5), (3,)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    metas = [
        TensorMeta(0, torch.Size([2, 4]), torch.float32, False),
        TensorMeta(0, torch.Size(shape), torch.float32, False),
    ]
    with pytest.raises(RuntimeError, match="cannot be joined along dimension 0"):
        joinable_shapes(metas, 0)
