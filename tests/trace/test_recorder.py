"""The recorder sees every step and disturbs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._dynamo  # an optimizer imports it, and it sets TORCHINDUCTOR_CACHE_DIR: not in the middle of a test
from torch import nn

from dp2ddp.trace.recorder import Recorder, StepLimit
from dp2ddp.trace.records import Trace, read_trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.first(x))
        return out


def train(steps: int, wrap: Callable[[nn.Module], nn.Module] = lambda net: net) -> nn.Module:
    torch.manual_seed(0)
    net = wrap(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(6, 3)).square().mean().backward()
        optimizer.step()
    return net


def recorded(folder: Path, work: Callable[[], object], **options: int) -> Trace:
    recorder = Recorder(folder, rank=0, **options)
    recorder.start()
    try:
        work()
    finally:
        recorder.finish()
    return read_trace(folder, 0)


def test_each_step_has_its_learning_rate_loss_gradients_and_parameters(tmp_path: Path) -> None:
    trace = recorded(tmp_path, lambda: train(3))
    steps = list(trace.steps())
    assert [step.learning_rates for step in steps] == [(0.5,)] * 3
    assert all(len(step.losses) == 1 for step in steps)
    first, second = steps[0], steps[1]
    assert second.gradients.values is not None
    assert first.parameters.values is not None
    assert second.parameters.values is not None
    moved = first.parameters.values - 0.5 * second.gradients.values  # SGD: p - lr * g
    assert torch.allclose(torch.from_numpy(moved), torch.from_numpy(second.parameters.values), atol=1e-6)


def test_parameters_have_the_models_own_names(tmp_path: Path) -> None:
    (layout,) = recorded(tmp_path, lambda: train(1)).layouts
    assert layout.names[:3] == ("first.weight", "first.bias", "norm.weight")


def test_a_wrapper_does_not_change_the_names(tmp_path: Path) -> None:
    (layout,) = recorded(tmp_path, lambda: train(1, nn.DataParallel)).layouts
    assert layout.names[:3] == ("first.weight", "first.bias", "norm.weight")


def test_a_parameter_without_a_module_is_named_by_its_place(tmp_path: Path) -> None:
    def work() -> None:
        parameter = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.sum().backward()
        optimizer.step()

    assert recorded(tmp_path, work).layouts[0].names == ("optimizer 0, parameter 0",)


def test_no_gradient_is_another_thing_than_zeros(tmp_path: Path) -> None:
    (step,) = recorded(tmp_path, lambda: train(1)).steps()
    missing = dict(zip(step.layout.names, step.gradients.hashes == 0, strict=True))
    assert missing["unused.weight"]
    assert not missing["first.weight"]


def test_buffers_at_the_end_are_kept_though_the_model_is_gone(tmp_path: Path) -> None:
    def work() -> None:
        train(2)

    buffers = recorded(tmp_path, work).buffers()
    assert int(buffers["norm.num_batches_tracked"]) == 2


def test_recording_changes_no_number_and_draws_none(tmp_path: Path) -> None:
    plain, state = train(3), torch.get_rng_state()
    found: list[nn.Module] = []
    recorded(tmp_path, lambda: found.append(train(3)))
    assert torch.equal(state, torch.get_rng_state())
    pairs = zip(plain.state_dict().values(), found[0].state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_beyond_the_budget_sketches_are_kept(tmp_path: Path) -> None:
    steps = list(recorded(tmp_path, lambda: train(3), full_bytes=300).steps())
    assert steps[0].gradients.values is not None
    assert steps[2].gradients.values is None
    assert steps[2].gradients.sketch is not None


def test_the_script_ends_after_so_many_steps(tmp_path: Path) -> None:
    with pytest.raises(StepLimit):
        recorded(tmp_path, lambda: train(9), last_step=2)
    trace = read_trace(tmp_path, 0)
    assert len(trace) == 2
    assert trace.end is not None
    assert trace.end.stopped


def test_a_recorder_that_fails_says_so_and_lets_the_script_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("dp2ddp.trace.writer.Writer.write_step", full_disk)
    trace = recorded(tmp_path, lambda: train(3))
    assert len(trace) == 0
    assert trace.end is not None
    assert "No space left" in trace.end.remarks[0]
