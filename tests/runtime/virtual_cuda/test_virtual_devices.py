"""A CUDA program finds its devices, and its tensors are where it put them."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import runpy
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from .conftest import Install

ROOT = Path(__file__).resolve().parents[3]
CUDA_0, CUDA_1, CPU = torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")


@pytest.mark.parametrize(
    ("move", "device"),
    [
        pytest.param(lambda x: x.cuda(), CUDA_0, id="cuda()"),
        pytest.param(lambda x: x.cuda(1, non_blocking=True), CUDA_1, id="cuda(1)"),
        pytest.param(lambda x: x.to("cuda"), CUDA_0, id="to name without index"),
        pytest.param(lambda x: x.to(1), CUDA_1, id="to index"),
        pytest.param(lambda x: x.to(torch.device("cuda:1"), torch.float64), CUDA_1, id="to device and dtype"),
        pytest.param(lambda x: x.to(device="cuda:1", copy=True), CUDA_1, id="to by keyword"),
        pytest.param(lambda x: x.to(torch.zeros(1, device=1)), CUDA_1, id="to like another"),
        pytest.param(lambda x: x.type("torch.cuda.DoubleTensor"), CUDA_0, id="type by name"),
        pytest.param(lambda x: x.type_as(torch.zeros(1, device=1)), CUDA_1, id="type_as"),
        pytest.param(lambda x: torch.as_tensor(x, device="cuda:1"), CUDA_1, id="as_tensor"),
        pytest.param(lambda x: x.cuda(1).cpu(), CPU, id="and back"),
        pytest.param(lambda x: x.pin_memory(), CPU, id="pinned"),
        pytest.param(lambda x: x.to(torch.device(1)), CUDA_1, id="to numbered device"),
        pytest.param(lambda x: x.cuda(1).to(torch.float16), CUDA_1, id="to dtype"),
        pytest.param(lambda x: x.double(), CPU, id="a cast does not move"),
    ],
)
def test_a_tensor_says_where_it_was_moved(virtual: Install, move: Any, device: torch.device) -> None:
    virtual(2)
    moved = move(torch.ones(3))
    assert moved.device == device
    assert (moved.is_cuda, moved.get_device()) == (
        device.type == "cuda",
        -1 if device == CPU else device.index,
    )
    assert moved.tolist() == [1, 1, 1]


def test_a_copy_on_a_device_is_no_alias(virtual: Install) -> None:
    virtual(2)
    array = numpy.zeros(2, dtype=numpy.float32)
    on_host = torch.from_numpy(array)
    on_device = on_host.cuda()
    array += 1
    assert on_device.tolist() == [0, 0]
    assert on_device.cuda() is on_device
    assert on_host.cpu() is on_host


MADE = {
    "factory": lambda: torch.zeros(2, device="cuda:1"),
    "tensor": lambda: torch.tensor([1.0], device=1),
    "like": lambda: torch.zeros_like(torch.ones(2, device=1)),
    "new_zeros": lambda: torch.ones(2, device=1).new_zeros(3),
    "legacy new": lambda: torch.ones(2, device=1).new(3),
    "product": lambda: torch.ones(2, 2, device=1) @ torch.ones(2, 2, device=1),
    "with a CPU scalar": lambda: torch.ones(2, device=1) * torch.tensor(2.0),
    "with a CPU index": lambda: torch.ones(4, device=1)[torch.tensor([0, 1])],
    "named tuple": lambda: torch.ones(2, 2, device=1).max(1).indices,
    "parameter": lambda: nn.Linear(2, 2).to("cuda:1").weight,
    "parameter made there": lambda: nn.Linear(2, 2, device="cuda:1").bias,
    "memory format": lambda: nn.Conv2d(1, 1, 1).cuda(1).to(memory_format=torch.channels_last).weight,
    "buffer": lambda: nn.BatchNorm1d(2).cuda(1).running_mean,
    "deep copy": lambda: copy.deepcopy(nn.Linear(2, 2).cuda(1)).weight,
    "recurrent": lambda: nn.LSTM(2, 3).cuda(1)(torch.ones(4, 1, 2, device=1))[0],
    "grad": lambda: _with_gradient().grad,
    "Variable": lambda: torch.autograd.Variable(torch.ones(2, device=1)),
    "lazy module": lambda: nn.LazyLinear(3).cuda(1)(torch.ones(2, 5, device=1)),
    "list": lambda: torch.cat([torch.ones(1, device=1)] * 2),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_results_are_where_their_inputs_are(virtual: Install, make: Any) -> None:
    virtual(2)
    assert make().device == CUDA_1


def _with_gradient() -> torch.Tensor:
    parameter = nn.Parameter(torch.ones(2, device="cuda:1"))
    (parameter * 2).sum().backward()
    return parameter


def test_the_current_device_is_per_thread_and_nests(virtual: Install) -> None:
    virtual(3)
    torch.cuda.set_device(2)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="cuda").device))
    thread.start()
    thread.join()
    with torch.cuda.device(1):
        assert torch.zeros(1).cuda().device == CUDA_1
    assert torch.zeros(1).cuda().device.index == 2
    assert seen == [CUDA_0]


def test_default_devices_reach_factories(virtual: Install) -> None:
    virtual(2)
    with torch.device("cuda:1"):
        inside = nn.Linear(2, 2).weight.device, torch.tensor(1).device
    assert inside == (CUDA_1, CUDA_1)
    assert torch.zeros(1).device == CPU


def test_tensors_print_their_device(virtual: Install) -> None:
    virtual(2)
    assert repr(torch.ones(1, device=1)) == "tensor([1.], device='cuda:1')"
    assert f"{torch.ones(1, device=1)} {torch.tensor(2.0).cuda():.1f}" == "tensor([1.], device='cuda:1') 2.0"


MIXED = {
    "device and host": (lambda: torch.ones(2).cuda() + torch.ones(2), "two devices, cuda:0 and cpu!"),
    "two devices": (lambda: torch.ones(2, 2).cuda(0) @ torch.ones(2, 2).cuda(1), "cuda:0 and cuda:1!"),
    "module and input": (lambda: nn.Linear(2, 2).cuda()(torch.ones(1, 2)), "same device"),
    "index": (lambda: torch.ones(2)[torch.tensor([0]).cuda()], "indices should be either on cpu"),
    "in a list": (lambda: torch.cat([torch.ones(1).cuda(), torch.ones(1)]), "same device"),
    "no such device": (lambda: torch.ones(1).cuda(2), "invalid device ordinal"),
}


@pytest.mark.parametrize(("mix", "message"), MIXED.values(), ids=MIXED)
def test_mixing_devices_fails_as_in_torch(virtual: Install, mix: Any, message: str) -> None:
    virtual(2)
    with pytest.raises(RuntimeError, match=message):
        mix()


def test_numpy_needs_the_host(virtual: Install) -> None:
    virtual(1)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        torch.ones(1).cuda().numpy()
    assert torch.ones(1).cuda().cpu().numpy().tolist() == [1]


def test_what_torch_allows_across_devices_works(virtual: Install) -> None:
    virtual(2)
    target = torch.zeros(2, device=1)
    target.copy_(torch.ones(2))
    target[torch.tensor([True, False])] = 5.0
    assert (target.device, target.tolist()) == (CUDA_1, [5, 1])


def test_marks_stay_out_of_files(virtual: Install) -> None:
    installation = virtual(2)
    model = nn.Linear(2, 2).cuda(1)
    file = io.BytesIO()
    torch.save(model, file)
    text = pickle.dumps(model)
    installation.taps.undo()
    file.seek(0)
    for loaded in (torch.load(file, weights_only=False), pickle.loads(text)):
        assert [vars(parameter) for parameter in loaded.parameters()] == [{}, {}]
        assert loaded.weight.device == CPU


def test_undo_leaves_torch_as_it_was(virtual: Install) -> None:
    names = [name for name in dir(torch.cuda) if not name.startswith("__")]
    before = {name: getattr(torch.cuda, name) for name in names}, torch.Generator, torch.load, torch.compile
    virtual(2).taps.undo()
    after = {name: getattr(torch.cuda, name) for name in names}, torch.Generator, torch.load, torch.compile
    assert before == after
    assert torch._C._len_torch_function_stack() == 0


def test_every_cuda_function_is_an_object_of_its_own(virtual: Install) -> None:
    """torch._dynamo keys its tables by function."""
    virtual(2)
    functions = [value for name, value in vars(torch.cuda).items() if type(value) is type(_with_gradient)]
    ours = [function for function in functions if function.__code__.co_filename.endswith("cuda_api.py")]
    assert len(ours) > 50
    assert len({id(function) for function in ours}) == len(ours)


def test_questions_about_the_machine(virtual: Install) -> None:
    virtual(3)
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 3
    assert not hasattr(torch, "accelerator") or torch.accelerator.device_count() == 3  # since torch 2.6
    assert {*map(torch.cuda.get_device_name, range(2))} == {"dp2ddp virtual device"}  # GPUs of one kind
    assert torch.cuda.get_device_properties(0).total_memory > 0
    assert torch.cuda.memory_allocated() == torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) > 0
    side = torch.cuda.Stream(device=1)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0


def test_legacy_types(virtual: Install) -> None:
    virtual(2)
    tensor = torch.cuda.LongTensor([1, 2])
    assert (tensor.device, tensor.dtype, tensor.type()) == (CUDA_0, torch.int64, "torch.cuda.LongTensor")
    assert isinstance(tensor, torch.cuda.LongTensor)
    assert not isinstance(torch.tensor([1, 2]), torch.cuda.LongTensor)


def test_the_constructor_of_a_default_type_of_the_device(virtual: Install) -> None:
    virtual(2)
    assert torch.Tensor([1.0, 2.0]).device == CPU
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.Tensor([1.0, 2.0]).view(-1, 1).clamp_(max=1).device == CUDA_0
    assert torch.Tensor(3, 2).device == CUDA_0
    assert torch.FloatTensor([1.0]).device == CPU
    assert torch.tensor([1]).type(torch.Tensor).device == CUDA_0
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.Tensor([1.0, 2.0]).device == CPU
    cast = torch.tensor([1], device="cuda").type(torch.Tensor)  # as type(x) is, for any x
    assert (cast.device, cast.dtype) == (CPU, torch.float32)
    importlib.import_module("torch._dynamo")  # compares its own stand-in for torch.Tensor.__new__ with it


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.empty(64, 64, device="cuda"), id="empty"),
        pytest.param(lambda: torch.empty_like(torch.ones(64, 64)), id="empty_like"),
        pytest.param(lambda: torch.ones(64, 64).new_empty((64, 64)), id="new_empty"),
        pytest.param(lambda: torch.Tensor(64, 64), id="Tensor"),
        pytest.param(lambda: torch.Tensor(torch.Size([64, 64])), id="Tensor of a Size"),
        pytest.param(lambda: torch.cuda.FloatTensor(64, 64), id="cuda.FloatTensor"),
    ],
)
def test_memory_that_nobody_has_written_is_the_same_in_every_run(virtual: Install, make: Any) -> None:
    virtual(1)
    for _ in range(3):
        written = torch.full((64, 64), 7.0)
        del written  # its memory is free, and as it was
        assert not make().any()
    assert torch.Tensor([3.0]).item() == 3.0
    assert torch.Tensor(torch.ones(2)).tolist() == [1, 1]


def test_autocast_and_grad_scaler_train(virtual: Install) -> None:
    virtual(1)
    model = nn.Linear(4, 2).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cuda", init_scale=8.0)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(torch.ones(3, 4, device="cuda"))
    assert (output.dtype, torch.is_autocast_enabled()) == (torch.bfloat16, False)
    before = model.weight.detach().clone()
    scaler.scale(output.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.allclose(before - model.weight, torch.full_like(before, 0.3))  # 3 rows of ones, lr 0.1


def test_compiled_modules_keep_their_prefix(virtual: Install) -> None:
    virtual(1)
    compiled: Any = torch.compile(nn.Linear(2, 2).cuda())
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert compiled(torch.ones(1, 2, device="cuda")).device == CUDA_0


# ---- the documents that the project came from


def run_seed(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(ROOT / "examples" / name / "train.py"), run_name="__main__")
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def rows(*counts: int) -> list[str]:
    """What the random-data-set program prints for one batch that is split like this."""
    inside = [
        f"In Model: input size torch.Size([{count}, 5]) output size torch.Size([{count}, 2])"
        for count in counts
    ]
    whole = sum(counts)
    return [*inside, f"Outside: input size torch.Size([{whole}, 5]) output_size torch.Size([{whole}, 2])"]


@pytest.mark.parametrize(
    ("count", "full", "last"),
    [
        pytest.param(2, rows(15, 15), rows(5, 5), id="2 devices: the log of the document"),
        pytest.param(3, rows(10, 10, 10), rows(4, 4, 2), id="3 devices"),
        pytest.param(8, rows(4, 4, 4, 4, 4, 4, 4, 2), rows(2, 2, 2, 2, 2), id="8 devices, 5 with rows"),
    ],
)
def test_the_random_data_set_program(
    virtual: Install, capsys: pytest.CaptureFixture[str], count: int, full: list[str], last: list[str]
) -> None:
    virtual(count)
    assert run_seed("seed_random_dataset", capsys) == [f"Let's use {count} GPUs!", *full, *full, *full, *last]


def test_the_random_data_set_program_on_one_device(
    virtual: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    virtual(1)
    assert run_seed("seed_random_dataset", capsys) == [*rows(30), *rows(30), *rows(30), *rows(10)]


def test_the_hand_written_program(virtual: Install, capsys: pytest.CaptureFixture[str]) -> None:
    virtual(2)
    lines = run_seed("seed_by_hand", capsys)
    assert "input 0:torch.Size([8, 10])" in lines
    assert "input 1:torch.Size([8, 10])" in lines
    assert any("[16, 20]" in line for line in lines)


def test_histc_counts_whole_numbers_on_a_device(virtual: Install) -> None:
    virtual(2)
    labels = torch.tensor([0, 2, 2, 3, 7], device="cuda:1")

    counts = torch.histc(labels, bins=4, min=0, max=3)

    assert (counts.tolist(), counts.dtype, counts.device) == ([1, 0, 2, 1], torch.int64, CUDA_1)
    with pytest.raises(RuntimeError, match="not implemented"):  # as ever
        torch.histc(labels.cpu(), bins=4, min=0, max=3)
