"""The recorder sees every step and disturbs nothing."""

from __future__ import annotations

import copy
import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo  # an optimizer imports it, and it sets TORCHINDUCTOR_CACHE_DIR: not in the middle of a test
from torch import nn

from dp2ddp.comparison.differences import array_difference
from dp2ddp.trace.recorder import Recorder, StepLimit
from dp2ddp.trace.records import FinalKind, Trace, gaps, read_trace


@pytest.fixture(autouse=True)
def nothing_of_other_tests_is_searched() -> Iterator[None]:
    """The recorder looks for models among all objects: behind thousands of tests that takes seconds, each time."""
    gc.freeze()
    yield
    gc.unfreeze()


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


def test_what_models_hold_at_the_end_is_kept_though_they_are_gone(tmp_path: Path) -> None:
    def work() -> None:
        average = copy.deepcopy(train(0))  # alive, and of no optimizer
        net = train(2)
        with torch.no_grad():
            average.first.weight.fill_(3.0)
            net.first.bias.zero_()

    final = recorded(tmp_path, work).final
    names, kinds = final.vector.layout.names, [FinalKind(each) for each in final.kinds]
    of = [kinds[place] for place, name in enumerate(names) if name == "first.weight"]
    assert {FinalKind.UNSTEPPED, FinalKind.SETTLED} <= set(of)
    assert {kind for name, kind in zip(names, kinds, strict=True) if name == "norm.running_mean"} == {
        FinalKind.BUFFER
    }
    assert FinalKind.CHANGED in {
        kind for name, kind in zip(names, kinds, strict=True) if name == "first.bias"
    }


def test_casts_are_told_apart_by_what_is_cast(tmp_path: Path) -> None:
    def work() -> None:
        net = Net()
        for tensor in (torch.ones(3), torch.ones(()), torch.ones(3).bool(), net.first.weight):
            recorder.saw_cast(tensor, torch.float16, "train.py:1")
        net.first(torch.ones(6, 3)).sum().backward()
        assert net.first.weight.grad is not None
        recorder.saw_cast(net.first.weight.grad, torch.bfloat16, "train.py:2")

    recorder = Recorder(tmp_path, rank=0)
    recorder.start()
    try:
        work()
    finally:
        recorder.finish()
    end = read_trace(tmp_path, 0).end
    assert end.casts == (
        ("tensors cast to float16", "train.py:1"),
        ("parameters cast to float16", "train.py:1"),
        ("gradients cast to bfloat16", "train.py:2"),
    )


def test_gradients_of_each_sample_do_not_end_the_record(tmp_path: Path) -> None:
    def work() -> None:
        net = nn.Linear(3, 2)
        net(torch.ones(2, 3)).sum().backward()
        weights = {name: each.detach() for name, each in net.named_parameters()}

        def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(net, weights, (row[None],)).sum()

        torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, torch.ones(2, 3))
        train(1)

    assert len([*recorded(tmp_path, work).steps()]) == 1


def test_recording_changes_no_number_and_draws_none(tmp_path: Path) -> None:
    plain, state = train(3), torch.get_rng_state()
    found: list[nn.Module] = []
    recorded(tmp_path, lambda: found.append(train(3)))
    assert torch.equal(state, torch.get_rng_state())
    pairs = zip(plain.state_dict().values(), found[0].state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_beyond_the_budget_sketches_are_kept(tmp_path: Path) -> None:
    steps = list(recorded(tmp_path, lambda: train(3), full_bytes=400).steps())
    assert steps[0].gradients.values is not None
    assert steps[2].gradients.values is None
    assert steps[2].gradients.sketch is not None


def test_the_script_ends_after_so_many_steps(tmp_path: Path) -> None:
    with pytest.raises(StepLimit):
        recorded(tmp_path, lambda: train(9), last_step=2)
    trace = read_trace(tmp_path, 0)
    assert len(trace) == 2
    assert trace.end is not None


def test_a_recorder_that_fails_says_so_and_lets_the_script_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("dp2ddp.trace.writer.Writer.write_step", full_disk)
    trace = recorded(tmp_path, lambda: train(3))
    assert len(trace) == 0
    assert "No space left" in trace.end.broken


class Turning(nn.Module):
    """Rotary embeddings, say: a parameter and buffers of kinds that safetensors or numpy do not have."""

    def __init__(self, kind: torch.dtype, imaginary: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2, dtype=kind))
        turns = torch.complex(torch.ones(2, dtype=torch.float64), torch.full((2,), imaginary).double())
        self.register_buffer("turns", turns.to(kind))
        self.register_buffer("back", turns.to(kind).conj())  # a view that notes what is to be done
        self.register_buffer("minus", turns.conj().imag)  # another one
        self.register_buffer("short", torch.ones(2).bfloat16())
        self.register_buffer("eighth", torch.ones(2).to(torch.float8_e4m3fn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.view_as_real(self.scale * self.turns * x)
        return out


def turn(kind: torch.dtype, imaginary: float) -> None:
    net = Turning(kind, imaginary)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(torch.ones(2)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_both_parts_of_complex_numbers_are_kept(tmp_path: Path, kind: torch.dtype) -> None:
    one, other = (recorded(tmp_path / str(number), partial(turn, kind, number)) for number in (2.0, 3.0))
    assert one.end.broken == ""
    assert one.buffers()["turns"].tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert one.buffers()["back"].tolist() == [[1.0, -2.0], [1.0, -2.0]]
    assert one.buffers()["minus"].tolist() == [-2.0, -2.0]
    assert one.buffers()["short"].tolist() == one.buffers()["eighth"].tolist() == [1.0, 1.0]
    assert {"turns", "back", "minus", "short", "eighth", "scale"} <= set(one.final.vector.layout.names)
    assert array_difference(one.buffers()["turns"], other.buffers()["turns"]) == pytest.approx(0.5)
    (step,), (elsewhere,) = one.steps(), other.steps()
    for part in ("gradients", "parameters", "buffers"):
        a, b = getattr(step, part), getattr(elsewhere, part)
        assert a.values.shape == b.values.shape
        assert array_difference(a.values, b.values) > 0.1


def test_a_complex_loss_has_both_parts(tmp_path: Path) -> None:
    def work(imaginary: float) -> None:
        net = Turning(torch.complex64, imaginary)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        out = net.scale * net.turns
        out.backward(torch.ones_like(out))
        optimizer.step()

    losses = []
    for imaginary in (2.0, 3.0):
        (step,) = recorded(tmp_path / str(imaginary), partial(work, imaginary)).steps()
        losses.append(step.losses)
    assert losses == [(6.0,), (8.0,)]


@pytest.mark.parametrize(
    "failing", ["recorder.as_array", "writer.Writer.write_end", "writer.Writer.write_final"]
)
def test_an_end_that_cannot_be_recorded_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("no such kind of number")

    monkeypatch.setattr(f"dp2ddp.trace.{failing}", fail)
    trace = recorded(tmp_path, lambda: train(2))
    assert trace.end.broken == "the record ends at step 2: ValueError: no such kind of number"
    assert trace.end.steps == 2


def test_an_end_for_which_there_is_no_room_at_all_is_told_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("dp2ddp.trace.writer.Writer.write_broken_end", full_disk)
    trace = recorded(tmp_path, lambda: train(2))
    assert trace.end is None
    assert list(gaps(tmp_path, range(1))) == ["rank 0: the record has no end"]
    said = "dp2ddp: the record ends at step 2: OSError: No space left on device; nor could that be written: "
    assert capsys.readouterr().err.startswith(said)


def test_the_optimizers_state_has_names_and_the_values_that_it_has(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []

    def work() -> None:
        net = nn.Linear(3, 2)
        adam = torch.optim.Adam(net.parameters())
        for _ in range(2):
            net(torch.randn(4, 3)).square().mean().backward()
            adam.step()
            kept.append(adam.state[net.bias]["exp_avg"].clone())

    for step, expected in zip(recorded(tmp_path, work).steps(), kept, strict=True):
        assert step.state.values is not None
        names = step.state.layout.names
        assert {"exp_avg of weight", "exp_avg_sq of bias", "step of weight"} <= set(names)
        place = step.state.layout.slices[names.index("exp_avg of bias")]
        assert np.array_equal(step.state.values[place], expected)


def test_the_history_of_lbfgs_is_kept_and_its_gradients_are_those_of_the_start(tmp_path: Path) -> None:
    first: list[torch.Tensor] = []

    def work() -> None:
        weight = torch.ones(3, requires_grad=True)
        lbfgs = torch.optim.LBFGS([weight], max_iter=3)

        def closure() -> torch.Tensor:
            lbfgs.zero_grad()
            loss = (weight**4).sum()
            loss.backward()
            first.append(weight.grad.clone())
            return loss

        for _ in range(2):
            lbfgs.step(closure)

    steps = list(recorded(tmp_path, work).steps())
    assert all(
        step.state is not None and "old_dirs[0] of optimizer 0, parameter 0" in step.state.layout.names
        for step in steps
    )
    assert len(steps[0].losses) > 1
    assert steps[0].gradients.values is not None
    assert np.array_equal(steps[0].gradients.values, first[0])
    assert steps[1].gradients.values is not None
    assert np.array_equal(steps[1].gradients.values, first[len(steps[0].losses)])


def test_buffers_of_each_step(tmp_path: Path) -> None:
    steps = list(recorded(tmp_path, lambda: train(3)).steps())
    for number, step in enumerate(steps, 1):
        place = step.buffers.layout.slices[step.buffers.layout.names.index("norm.num_batches_tracked")]
        assert step.buffers.values[place] == number


def test_the_start_is_what_the_parameters_were_before_the_first_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    expected = Net()
    initial = recorded(tmp_path, lambda: train(2)).initial()
    for name, parameter in expected.named_parameters():
        place = initial.layout.slices[initial.layout.names.index(name)]
        assert np.array_equal(initial.values[place], parameter.detach().flatten())


def test_each_optimizer_has_a_start_of_its_own(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(2):
            train(1)

    trace = recorded(tmp_path, work)
    assert [step.optimizer for step in trace.steps()] == [0, 1]
    assert trace.initial().layout.names.count("first.weight") == 2


def test_a_large_state_is_hashed_at_every_eighth_step(tmp_path: Path) -> None:
    def work() -> None:
        weight = torch.ones(3 << 18, requires_grad=True)  # two moments: 6 MB
        weight.grad = torch.ones_like(weight)
        adam = torch.optim.Adam([weight])
        for _ in range(10):
            adam.step()

    steps = list(recorded(tmp_path, work, full_bytes=0).steps())
    assert [step.number for step in steps if step.state is not None] == [0, 8]


def test_a_forked_child_leaves_the_record_alone(tmp_path: Path) -> None:
    """It steps on two numbers only: a parent that has used its threads leaves a child none to compute with."""
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        optimizer.step()
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(20)
                optimizer.step()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0

    assert len(recorded(tmp_path, work)) == 1


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_models_of_torch_jit_are_recorded_as_others(tmp_path: Path) -> None:
    """Their tables are no dicts, and are made anew whenever somebody asks for them."""
    names = []
    for number, wrap in enumerate((lambda model: model, torch.jit.script)):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recorder = Recorder(tmp_path / str(number), rank=0)
        recorder.start()
        for _ in range(3):
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
        copied = torch.jit.script(model)
        recorder.finish()
        trace = read_trace(tmp_path / str(number), 0)
        assert trace.end
        assert trace.end.broken == ""
        assert len(list(trace.steps())) == 3
        names.append((trace.layouts[0].names, set(trace.final.vector.layout.names)))
        del model, copied
    assert names[0] == names[1]


def asks_for(what: str) -> Callable[[], None]:
    def work() -> None:
        net = nn.Linear(3, 2)
        if what == "COMPILE":
            torch.compile(net, backend="eager")
        if what == "COMPILE in place":
            net.compile(backend="eager")
        torch.backends.cudnn.benchmark = what == "CUDNN"
        torch.set_float32_matmul_precision("high" if what == "TF32" else "highest")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, fused=what == "FUSED")
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    return work


@pytest.mark.parametrize("what", ["", "COMPILE", "COMPILE in place", "CUDNN", "TF32", "FUSED"])
def test_what_the_script_asks_for_and_virtual_devices_leave_out_is_kept(tmp_path: Path, what: str) -> None:
    try:
        trace = recorded(tmp_path, asks_for(what))
    finally:
        torch.backends.cudnn.benchmark = False
        torch.set_float32_matmul_precision("highest")
    assert trace.end.unchecked == tuple(what.split()[:1])


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="torch before 2.9 has one way to ask for TF32",
)
def test_tf32_that_is_asked_for_in_the_newer_way_is_kept(tmp_path: Path) -> None:
    """torch then cannot say what the older setting is, and raises."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "tf32"
        trace = recorded(tmp_path, lambda: train(1))
    finally:
        settings.fp32_precision = before
        torch.set_float32_matmul_precision("highest")
    assert trace.end.unchecked == ("TF32",)
