"""In the float64 stage a script computes in double precision, whatever it asks for."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dp2ddp.runtime.virtual_cuda.precision import DoublePrecision

from .conftest import Install


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.zeros(2), id="factory"),
        pytest.param(lambda: torch.zeros(2, dtype=torch.float32), id="asked for float32"),
        pytest.param(lambda: torch.ones(2).float().half().bfloat16(), id="casts by name"),
        pytest.param(lambda: torch.arange(2).to(torch.float16), id="cast by dtype"),
        pytest.param(lambda: torch.arange(2).type(torch.FloatTensor), id="legacy type"),
        pytest.param(lambda: torch.arange(2).type("torch.cuda.FloatTensor"), id="legacy type by name"),
        pytest.param(lambda: torch.cuda.FloatTensor([1.0]), id="legacy constructor on the device"),
        pytest.param(lambda: torch.arange(2).type(torch.cuda.FloatTensor), id="legacy type of the device"),
        pytest.param(lambda: torch.FloatTensor([1.0]), id="legacy constructor"),
        pytest.param(lambda: torch.Tensor([1.0]), id="oldest constructor"),
        pytest.param(lambda: torch.from_numpy(numpy.zeros(2, numpy.float32)), id="from_numpy"),
        pytest.param(lambda: torch.tensor(numpy.zeros(2, numpy.float32)), id="tensor of numpy"),
        pytest.param(lambda: torch.as_tensor(numpy.float32(2)), id="as_tensor of a numpy number"),
        pytest.param(lambda: nn.Linear(2, 2).half().cuda().weight, id="parameter"),
        pytest.param(
            lambda: nn.Linear(2, 2, dtype=torch.float32).to(torch.bfloat16).bias, id="module.to(dtype)"
        ),
        pytest.param(lambda: torch.ones(2).softmax(0, dtype=torch.float32), id="dtype of a function"),
        pytest.param(lambda: _under_autocast(), id="autocast"),
    ],
)
def test_everything_is_double(virtual: Install, make: Any) -> None:
    virtual(1, "float64")
    assert make().dtype == torch.float64


def test_a_legacy_type_knows_its_tensors(virtual: Install) -> None:
    virtual(1, "float64")
    assert isinstance(torch.zeros(2).cuda(), torch.cuda.FloatTensor)
    assert not isinstance(torch.zeros(2), torch.cuda.FloatTensor)
    assert not isinstance(torch.arange(2).cuda(), torch.cuda.FloatTensor)


def _under_autocast() -> torch.Tensor:
    model = nn.DataParallel(nn.Linear(2, 2).cuda())
    with torch.autocast("cuda"):
        output: torch.Tensor = model(torch.ones(2, 2).cuda())
    return output


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_runs_again_in_backward_is_double_as_well(virtual: Install, reentrant: bool) -> None:
    virtual(1, "float64")
    seen = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.ones((), dtype=torch.float32, device="cuda"))
        return x * seen[-1]

    x = torch.ones(2, device="cuda", requires_grad=True)
    checkpoint(forward, x, use_reentrant=reentrant).sum().backward()
    assert [one.dtype for one in seen] == [torch.float64] * 2
    assert [one.is_cuda for one in seen] == [True] * 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_other_types_stay(virtual: Install, dtype: torch.dtype) -> None:
    virtual(1, "float64")
    assert torch.ones(2, dtype=dtype).cuda().dtype == dtype


def test_loaded_files_become_double(virtual: Install) -> None:
    file = io.BytesIO()
    torch.save(
        {"weight": torch.ones(2), "parameter": nn.Parameter(torch.ones(2)), "steps": torch.arange(2)}, file
    )
    file.seek(0)
    virtual(1, "float64")
    loaded = torch.load(file)
    assert [loaded[name].dtype for name in loaded] == [torch.float64, torch.float64, torch.int64]
    assert loaded["parameter"].requires_grad


def test_a_leaf_stays_a_leaf(virtual: Install) -> None:
    virtual(1, "float64")
    leaf = torch.tensor(numpy.ones(2, numpy.float32), requires_grad=True)
    assert (leaf.is_leaf, leaf.requires_grad) == (True, True)


@pytest.mark.parametrize(
    ("gradient", "scale", "weight"),
    [
        pytest.param(1.0, 16.0, 0.9, id="finite: a step, the scale grows"),
        pytest.param(float("inf"), 4.0, 1.0, id="infinite: no step, the scale shrinks"),
    ],
)
def test_grad_scaler_works_in_double(virtual: Install, gradient: float, scale: float, weight: float) -> None:
    virtual(1, "float64")
    parameter = nn.Parameter(torch.ones(1, device="cuda"))
    optimizer = torch.optim.SGD([parameter], 0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=1)
    scaler.scale(parameter * gradient).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (scaler.get_scale(), parameter.item()) == (scale, pytest.approx(weight, abs=1e-15))


def test_undo_brings_float32_back(virtual: Install) -> None:
    virtual(1, "float64").taps.undo()
    assert torch.zeros(1).dtype == torch.get_default_dtype() == torch.float32
    assert torch.FloatTensor(1).dtype == torch.float32


OPENCV = """
import sys
class error(Exception): pass

def cvtColor(image, code):
    if image.dtype == "float64":
        raise error("Unsupported depth of input image")
    return image[..., ::-1].copy()
"""


def test_opencv_takes_what_the_script_thinks_is_float32(
    virtual: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(OPENCV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    virtual(1, "float64")

    cv2 = importlib.import_module("cv2")
    turned = cv2.cvtColor(torch.tensor([[[0.25, 0.5, 1.0]]], dtype=torch.float32).numpy(), 4)

    assert (turned.tolist(), turned.dtype) == ([[[1.0, 0.5, 0.25]]], numpy.float64)
    assert cv2.cvtColor(numpy.zeros((1, 1, 3), dtype=numpy.uint8), 4).dtype == numpy.uint8


def test_half_precision_that_a_script_asks_for_is_told(virtual: Install) -> None:
    virtual(1, "float64")
    stack: Any = torch.overrides._get_current_function_mode_stack()
    (mode,) = (each for each in stack if isinstance(each, DoublePrecision))
    told: list[tuple[tuple[int, ...], torch.dtype]] = []
    mode.observers.append(lambda tensor, dtype: told.append((tuple(tensor.shape), dtype)))
    nn.Linear(2, 1, bias=False).half()
    torch.ones(3).to(torch.bfloat16)
    torch.zeros(4, dtype=torch.float16)
    torch.ones(6).type("torch.HalfTensor")
    torch.ones(5).float().to("cpu").double().mul(2)
    assert told == [
        ((1, 2), torch.float16),
        ((3,), torch.bfloat16),
        ((4,), torch.float16),
        ((6,), torch.float16),
    ]
