"""The small helpers' wrappers against DataParallel's numbers, on 2 and 3 ranks over gloo (one run for all tests)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates.broadcast import Rank
from dp2ddp.templates.overlapping import OverlappingSums
from dp2ddp.templates.replicas import ModuleState, as_in_a_thread, copy_part, share_tensors
from dp2ddp.templates.sums import GradientSums, sum_over_ranks

from dp2ddp.runtime.process.server import Server
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from scenarios import SCENARIOS  # noqa: E402

pytestmark = pytest.mark.torchrun

# What WholeBatchDDP does not do as DataParallel does: its words, or torch's.
REFUSED = {
    "backward_twice_on_one_forward": "a step has two forwards, or two backwards",
    "backwards_in_any_order": "a step has two forwards, or two backwards",
    "several_forwards_one_backward": "a step has two forwards, or two backwards",
    "wgan_gradient_penalty": "an input needs a gradient",
    "gradient_penalty_with_fewer_rows_than_ranks": "an input needs a gradient",
    "gan_with_batch_norm": "a step has two forwards, or two backwards",
    "three_backwards_of_a_gan": "an input needs a gradient",
    "inputs_that_want_gradients": "an input needs a gradient",
    "input_that_some_replicas_use": "an input needs a gradient",
    "gradients_asked_for_by_autograd_grad": "running autograd.grad()",
    "gradients_of_some": "autograd.grad or backward(inputs=...) asks for some gradients",
    "hooks_on_parameters": "a parameter or a layer has a backward hook",
    "thawed_and_replaced_after_the_wrap": "other parameters are trained than at the wrap",
    "recurrent_along_dim_1": "unexpected keyword argument 'dim'",
    "reentrant_checkpoints": "a backward of its own",
    "two_models_draw_from_one_device": "doesn't have any parameter that requires a gradient",
    "learned_and_no_parameters": "a layer has a tensor that is no parameter, and wants a gradient",
    "attack_on_a_frozen_model": "doesn't have any parameter that requires a gradient",
}
KINDS = ("WholeBatch", "WholeBatchParallel")
DONE = [name for name in SCENARIOS if name not in REFUSED]
# Gradients of several passes add up before they are summed over the ranks: equal but for rounding. The text tells such
# scripts (codemod/looks/wrapper.py).
OTHER_ORDER = {"accumulation", "forward_and_module_method", "penalty_under_accumulation"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Any:
    """What every rank found, in rank order, by the number of ranks."""
    return found_on_ranks(server, HERE / "scenario_program.py", tmp_path_factory.mktemp("ranks"), "2,3")


def wrong(answers: Any, cases: Iterable[str], label: str, look: Callable[[Any], object]) -> dict[str, object]:
    """What `look` says of the answers of any rank, by case."""
    told = ((case, look(rank[f"{case} {label}"])) for case in cases for rank in answers)
    return {case: what for case, what in told if what}


def other_numbers(answer: Any) -> object:
    if "failed" in answer or not answer["compared"]:
        return answer
    return None if answer["difference"] < 1e-12 else answer["difference"]


def other_bits(answer: Any) -> object:
    return answer.get("failed") or answer["other_bits"]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", [*KINDS, "WholeBatchInParts"])
def test_every_number_is_dataparallels(found: Any, kind: str, world: int) -> None:
    assert wrong(found[world], SCENARIOS, f"{kind} float64", other_numbers) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_have_the_same_bits_in_float32(found: Any, kind: str) -> None:
    assert wrong(found[2], SCENARIOS, f"{kind} float32", other_bits) == {}


def test_what_trains_outside_of_the_model_is_rank_0s_again_after_twenty_forwards(found: Any) -> None:
    before, behind = zip(*(rank["trained beside"] for rank in found[2]), strict=True)

    assert before[0] != before[1]  # these ranks drift apart
    assert behind[0] == behind[1]


@pytest.mark.parametrize("world", [2, 3])
def test_every_number_of_ddp_is_dataparallels(found: Any, world: int) -> None:
    assert wrong(found[world], DONE, "WholeBatchDDP float64", other_numbers) == {}


def test_two_ranks_of_ddp_have_the_same_bits_in_float32(found: Any) -> None:
    cases = [case for case in DONE if case not in OTHER_ORDER | {"converted_after_the_wrap"}]
    assert wrong(found[2], cases, "WholeBatchDDP float32", other_bits) == {}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("case", REFUSED)
def test_what_ddp_cannot_do_is_refused_on_every_rank(found: Any, case: str, world: int) -> None:
    for answers in found[world]:
        assert REFUSED[case] in answers[f"{case} WholeBatchDDP float64"]["failed"]


@pytest.mark.parametrize("world", [2, 3])
def test_what_ddp_would_not_see_is_refused(found: Any, world: int) -> None:
    for answers in found[world]:
        assert {name: words.partition(":")[0] for name, words in answers["refusals"].items()} == {
            "gradients_of_gradients": "gradients of gradients are wanted",
            "parameters_written_in_forward": "",
            "hooks_of_layers": "a parameter or a layer has a backward hook",
            "two_forwards_two_backwards": "a step has two forwards, or two backwards",
            "an_ordinary_step": "",
            "sums_beside_backward": "",
            "reentrant_checkpoints_of_some": "an output wants a gradient on some ranks",
            "gradients_of_sparse_gradients": "",
        }


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", ["WholeBatch", "WholeBatchDDP"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a number", "outputs are gathered as tensors; a forward gives a float"),
        ("a size", "outputs are gathered as tensors; a forward gives a int"),
        ("an array", "outputs are gathered as tensors; a forward gives a ndarray"),
        ("an object", "outputs are gathered as tensors; a forward gives a slice"),
        ("a set", "outputs are gathered as tensors; a forward gives a set"),
        ("other widths", "outputs of other shapes are not gathered"),
        ("a dict in another order", "outputs of other shapes are not gathered"),
        ("a list of its own", "outputs are gathered as tensors; a forward gives a UserList"),
        ("nothing, a text, a cache", ""),
    ],
)
def test_what_dataparallel_cannot_gather_is_refused(
    found: Any, given: str, words: str, kind: str, world: int
) -> None:
    for answers in found[world]:
        said = answers["gathers"][f"{given} {kind}"]
        assert said.startswith(words) if words else not said


class Counting(torch.nn.Linear):
    """Hears of each attribute that is set."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        vars(self)["set"] = vars(self).get("set", 0) + 1


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()),
        torch.nn.BatchNorm1d(3),
        torch.nn.LSTM(2, 2),
        Counting(2, 2),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_module_is_copied_as_torch_copies_it_for_a_replica(module: Any) -> None:
    own, of_torch = copy_part(module), module._replicate_for_data_parallel()
    assert type(own) is type(of_torch)
    assert vars(own) == vars(of_torch)  # tensors are themselves
    for name in ("_parameters", "_buffers", "_modules"):
        assert vars(own)[name] is not vars(module)[name]


@pytest.mark.parametrize("kind", [GradientSums, OverlappingSums])
def test_one_node_hands_gradients_to_parameters_in_the_modules_order(kind: Any) -> None:
    """As the node of DataParallel's Broadcast does: hooks on parameters run in that order."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    node = kind(ModuleState(module), wait=False).copies()[module[0].weight].grad_fn
    while node.name() != "CopyToRanksBackward":
        node = node.next_functions[0][0]
    handed_to = [id(each.variable) for each, _ in node.next_functions if each is not None]
    assert handed_to == [id(parameter) for parameter in module.parameters()]


def test_numbers_are_shared_device_by_device_whatever_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may come to the wrap before all of it is where it will be: `nn.DataParallel(net).cuda()`."""
    sent: dict[Any, list[tuple[str, torch.dtype]]] = {}

    def broadcast(group: Any, tensors: list[torch.Tensor], *more: int) -> None:
        sent[group] = [(each.device.type, each.dtype) for each in tensors]
        for each in tensors:
            each.fill_(1)

    monkeypatch.setattr(torch.distributed, "_broadcast_coalesced", broadcast)
    monkeypatch.setattr(Rank, "host", "gloo")
    counter, waves, image = torch.tensor(0), torch.zeros(2, dtype=torch.cfloat), torch.zeros(2, 3, 4).mT
    share_tensors([torch.zeros(2), torch.zeros(3, device="meta"), counter, waves, image])
    as_bytes = ("cpu", torch.uint8)
    assert sent["gloo"] == [as_bytes, as_bytes, as_bytes, ("cpu", torch.float32)]
    assert sent[torch.distributed.group.WORLD] == [("meta", torch.uint8)]
    assert (counter, image.min()) == (0x0101010101010101, 1)
    assert waves.abs().min() > 0


def test_what_lies_on_the_host_is_summed_by_the_hosts_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that a layer holds beside its parameters stays there, where the forward moves it by `.to(x.device)`."""
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda message, group: sent.append((message.device.type, group))
    )
    monkeypatch.setattr(Rank, "host", "gloo")
    sum_over_ranks([torch.zeros(2), torch.zeros(3, device="meta"), torch.zeros(1)])
    assert sent == [("cpu", "gloo"), ("meta", None)]


def test_inference_mode_does_not_reach_replicas_as_it_does_not_reach_threads() -> None:
    with torch.inference_mode():
        with as_in_a_thread():
            assert not torch.is_inference_mode_enabled()
            assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled()
