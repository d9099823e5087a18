"""Files that torch, numpy and pickle wrote: the same but for rounding, or not; nothing of their authors runs."""

from __future__ import annotations

import bz2
import collections
import gzip
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dp2ddp.comparison import checkpoints
from dp2ddp.comparison.contents import How, Spelling, content_hash
from dp2ddp.helpers import AnyDataParallel, WholeBatch
from tests.comparison.unlike import difference

SAVE = {"torch": torch.save, "pickle": pickle.dump}


class Net(nn.Module):
    """It holds itself, as hooks and parents do, and what torch does not know."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.LSTM(2, 3)
        self.methods = [self.forward]
        self.counts = collections.Counter(a=1)
        self.rnn.weight_hh_l0.data *= factor


MAKERS: dict[str, Callable[[float], Any]] = {
    "state": lambda factor: Net(factor).state_dict(),
    "module": Net,
    "wrapper": lambda factor: nn.DataParallel(Net(factor)),
    "by tensors": lambda factor: {(weight := Net(factor).rnn.weight_hh_l0): {"exp_avg": weight.detach()}},
    "numpy": lambda factor: {"weight": [np.ones((2, 2)) * factor], "names": np.array(["a", None])},
    "a number of numpy": lambda factor: np.float64(factor),
    "numbers": lambda factor: [1.5, {"loss": 0.25 * factor}, "text"],
}


def saved(path: Path, thing: Any, how: str) -> Path:
    with path.open("wb") as file:
        SAVE[how](thing, file)
    return path


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize("kind", MAKERS)
def test_rounding_is_no_difference_and_a_change_is_one(tmp_path: Path, kind: str, how: str) -> None:
    expected, almost, others = (
        saved(tmp_path / f"{factor}.pt", MAKERS[kind](factor), how) for factor in (1.0, 1 + 1e-6, 1 + 1e-3)
    )
    assert difference(expected, almost, 1e-5) == ""
    assert difference(expected, others, 1e-5) != ""


WHOLE = {
    "tensor": lambda kind, value: torch.tensor([1 + 1j, value], dtype=kind),
    "conjugated tensor": lambda kind, value: torch.tensor([1 + 1j, value], dtype=kind).conj(),
    "array": lambda kind, value: torch.tensor([1 + 1j, value], dtype=kind).numpy(),
    "number of numpy": lambda kind, value: torch.tensor(value, dtype=kind).numpy()[()],
    "number": lambda kind, value: complex(value),
}


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("what", WHOLE)
def test_imaginary_parts_count(tmp_path: Path, what: str, kind: torch.dtype, how: str) -> None:
    numbers = {"as it was": 2 + 3j, "rounded": 2 + 3.000001j, "other": 2 + 3.3j, "the other way": 2 - 3j}
    files = {
        name: saved(tmp_path / f"{name}.pt", {"rot": WHOLE[what](kind, value)}, how)
        for name, value in numbers.items()
    }
    assert difference(files["as it was"], files["rounded"], 1e-5) == ""
    assert "['rot']" in difference(files["as it was"], files["other"], 1e-5)
    assert "['rot']" in difference(files["as it was"], files["the other way"], 1e-5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_imaginary_parts_of_arrays_count(tmp_path: Path, dtype: type) -> None:
    for name, value in (("a", 1 + 2j), ("rounded", 1 + 2.000001j), ("b", 1 - 2j)):
        np.save(tmp_path / f"{name}.npy", np.array([value, 3], dtype))
    assert difference(tmp_path / "a.npy", tmp_path / "rounded.npy", 1e-5) == ""
    assert "differs by" in difference(tmp_path / "a.npy", tmp_path / "b.npy", 1e-5)


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(float("inf"), 0.3, id="best loss"),
        pytest.param(float("inf"), float("-inf"), id="two signs"),
        pytest.param(0.3, float("nan"), id="nan"),
        pytest.param(np.float64("inf"), np.float64(0.3), id="of numpy"),
        pytest.param(complex(float("nan"), 1), complex(float("nan"), 2), id="beside a nan"),
        pytest.param(torch.tensor([float("-inf"), 1.0]), torch.tensor([float("-inf"), 2.0]), id="a mask's inf"),
        pytest.param(torch.tensor([float("inf"), 1.0]), torch.tensor([1.0, 1.0]), id="inf in a tensor"),
        pytest.param(torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 2.0]), id="a tensor's nan"),
    ],
)  # fmt: skip
def test_an_inf_or_nan_hides_no_difference(tmp_path: Path, a: Any, b: Any, how: str) -> None:
    expected, same, other = (
        saved(tmp_path / name, {"best": each}, how) for name, each in (("a", a), ("a2", a), ("b", b))
    )
    assert difference(expected, same, 1e-5) == ""
    assert "['best']" in difference(expected, other, 1e-5)


def test_rounding_beside_a_nan_is_none(tmp_path: Path) -> None:
    expected, almost = (
        saved(tmp_path / str(value), torch.tensor([float("nan"), value]), "torch")
        for value in (1.0, 1.000001)
    )
    assert difference(expected, almost, 1e-5) == ""


def test_arrays_are_compared(tmp_path: Path) -> None:
    for name, factor in (("ours", 1.0), ("almost", 1 + 1e-15), ("others", 2.0)):
        np.save(tmp_path / f"{name}.npy", np.ones(3) * factor)
        np.savez(tmp_path / f"{name}.npz", a=np.ones(3) * factor)
    for end in ("npy", "npz"):
        assert difference(tmp_path / f"ours.{end}", tmp_path / f"almost.{end}", 1e-10) == ""
        assert "differs by 1.0e+00" in difference(tmp_path / f"ours.{end}", tmp_path / f"others.{end}", 1e-10)


@pytest.mark.parametrize(
    ("a", "b", "how"),
    [
        ({"best": 0.5}, {"best": 0.25}, How.NUMBERS),
        ({"name": "epoch 1"}, {"name": "epoch 2"}, How.NUMBERS),
        ({"name": "adam"}, {"name": "sgd"}, How.WORDS),
        ({"net": torch.zeros(2)}, {"net": torch.ones(2)}, How.TENSOR),
        ({"net": 1}, {"module.net": 1}, How.KEYS),
        ([1], [1, 2], How.OTHERWISE),
    ],
)
def test_how_two_files_differ_is_a_value(tmp_path: Path, a: Any, b: Any, how: How) -> None:
    found = checkpoints.difference(
        *(saved(tmp_path / name, each, "torch") for name, each in (("a", a), ("b", b))), 1e-9
    )
    assert found is not None
    assert (found.how, found.at) == (how, "" if how in (How.KEYS, How.OTHERWISE) else str([*a]))


def test_times_in_an_archive_of_arrays_are_times(tmp_path: Path) -> None:
    """A name alone does not make weights times."""

    def left_out(name: str, values: object, other: object) -> bool:
        for file, each in (("a", values), ("b", other)):
            np.savez(tmp_path / f"{file}.npz", loss=np.ones(2), **{name: np.array(each)})
        return difference(tmp_path / "a.npz", tmp_path / "b.npz", 1e-10) == ""

    assert left_out("epoch_time", [0.5, 0.25], [0.75, 0.5])
    assert left_out("time", 12.5, 13.0)
    assert not left_out("epoch_time", [0.5, 0.25], [0.75])
    assert not left_out("time_shift", [0.5, -0.25], [0.75, -0.25])
    assert not left_out("time_embed.bias", [0.5, 0.25], [0.75, 0.25])
    assert not left_out("time_embed", [[0.5, 0.25]], [[0.75, 0.25]])


def test_weights_are_told_before_the_number_of_an_epoch(tmp_path: Path) -> None:
    a, b = (
        saved(tmp_path / f"{epoch}.pt", {"epoch": epoch, "net": torch.ones(2) * epoch}, "torch")
        for epoch in (1, 3)
    )
    assert difference(a, b, 1e-9).startswith("['net'] differs by")


def test_what_cannot_be_read_has_other_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"\x89PNG" + name.encode())
    assert difference(tmp_path / "a", tmp_path / "b", 1e-10).startswith("has other bytes")


def test_the_momentum_of_rounding_is_rounding(tmp_path: Path) -> None:
    paths = [
        saved(tmp_path / name, {"momentum_buffer": torch.tensor([size])}, "torch")
        for name, size in (("ours", 3e-17), ("theirs", -2e-17))
    ]
    assert "differs by" in difference(*paths, 1e-10)
    assert difference(*paths, 1e-10, floor=1e-15) == ""


def test_optimizers_state_is_judged_by_kinds_as_steps_are(tmp_path: Path) -> None:
    """RMSprop divides the rounding of a bias in front of a normalisation by its eps: 1e-10 beside a momentum of 1."""

    def kept(bias: float, weight: float = 1.0, kind: str = "momentum_buffer") -> dict[str, Any]:
        tensors = [{kind: torch.tensor([value], dtype=torch.float64)} for value in (weight, bias)]
        return {"state": dict(enumerate(tensors)), "param_groups": [{"lr": 0.1}]}

    def whole(bias: float) -> torch.optim.Optimizer:
        made = torch.optim.SGD([nn.Parameter(torch.ones(1)) for _ in range(2)], 0.1, momentum=0.5)
        for parameter, value in zip(made.param_groups[0]["params"], (1.0, bias), strict=True):
            made.state[parameter]["momentum_buffer"] = torch.tensor([value], dtype=torch.float64)
        return made

    def told(a: Any, b: Any) -> str:
        paths = [saved(tmp_path / name, {"opt": each}, "torch") for name, each in (("a", a), ("b", b))]
        return difference(*paths, 1e-10)

    assert told(kept(3e-11), kept(-2e-11)) == ""
    assert "['opt']['state'][1]['momentum_buffer'] differs by 5.0e-10" in told(kept(3e-10), kept(-2e-10))
    assert "['opt']['state'][0]['momentum_buffer'] differs by" in told(kept(3e-11), kept(3e-11, weight=1.1))
    assert told(whole(3e-11), whole(-2e-11)) == ""
    assert "differs by" in told(whole(3e-10), whole(-2e-10))
    assert told({"state": [1.0], "param_groups": 3}, {"state": [2.0], "param_groups": 3}) != ""
    other = kept(3e-11)["state"]  # no optimizer's: each tensor by itself
    assert "differs by" in told(other, kept(-2e-11)["state"])


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("how", SAVE)
def test_reading_runs_nothing_of_the_author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [saved(tmp_path / name, [Bomb(), name], how) for name in ("a", "b")]
    assert difference(*paths, 1e-10) == "[1] is 'b' instead of 'a'"
    assert not Path("exploded").exists()


def test_texts_in_a_checkpoint_may_name_the_folder_and_the_time(tmp_path: Path) -> None:
    texts = ("/tmp/dp/runs/20261121-155241", "/tmp/ddp/runs/20261121-155303")
    paths = [saved(tmp_path / name, {"to": text}, "torch") for name, text in zip("ab", texts, strict=True)]
    spellings = Spelling((("/tmp/dp", "/home/me"),)), Spelling((("/tmp/ddp", "/home/me"),))

    assert "instead of" in difference(*paths, 1e-10)
    assert difference(*paths, 1e-10, spellings=spellings) == ""


def test_places_in_memory_are_no_difference(tmp_path: Path) -> None:
    """Of `vars(args)` with a function in it, and of what is printed."""
    texts = (
        "<function main at 0x7f17ba96d800>",
        "<function main at 0x7f17ba8c2c00>",
        "<function test at 0x7f17>",
    )
    a, b, c = (saved(tmp_path / name, {"fn": text}, "torch") for name, text in zip("abc", texts, strict=True))
    assert difference(a, b, 1e-10) == ""
    assert "'<function test at" in difference(a, c, 1e-10)
    assert Spelling().plain(texts[0]) == Spelling().plain(texts[1]) != "0x7f17ba96d800"
    assert Spelling().plain("flags 0x7f17") == "flags 0x7f17"


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_what_is_compressed_is_compared_by_what_is_in_it(tmp_path: Path, opener: Any) -> None:
    suffix = {gzip.open: ".gz", bz2.open: ".bz2", lzma.open: ".xz"}[opener]
    for name, value in (("a", 1.5), ("b", 1.5), ("c", 2.5)):
        with opener(tmp_path / f"{name}{suffix}", "wb") as file:
            pickle.dump({"loss": value}, file)
    a, b, c = (tmp_path / f"{name}{suffix}" for name in "abc")
    assert content_hash(a) == content_hash(b) != content_hash(c)
    assert difference(a, b, 1e-9) == ""
    assert "2.5 instead of 1.5" in difference(a, c, 1e-9)


def test_a_name_that_lies_about_compression_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"not compressed")
    (tmp_path / "b.gz").write_bytes(b"not compressed either")
    assert content_hash(tmp_path / "a.gz")
    assert "cannot be read" in difference(tmp_path / "a.gz", tmp_path / "b.gz", 1e-9)


def test_a_format_of_others_may_say_when_it_was_written(tmp_path: Path) -> None:
    """As a .mat file does in its head."""
    for name, day, value in (("a", "Sat", 1), ("b", "Sun", 1), ("c", "Sun", 2)):
        head = f"MATLAB 5.0 MAT-file, Created on: {day} Nov 21 18:14:03 2026".encode()
        (tmp_path / name).write_bytes(head + bytes([0, 255, value]))
    assert difference(tmp_path / "a", tmp_path / "b", 1e-9) == ""
    assert "cannot be read" in difference(tmp_path / "a", tmp_path / "c", 1e-9)


def test_a_data_parallel_is_one_however_pickle_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.DataParallel(nn.Linear(2, 2))
    places = {"device_ids": [0, 1], "src_device_obj": torch.device("cuda", 0)}  # as where there are devices
    vars(net).update(places)
    torch.save(net, tmp_path / "theirs.pt")
    wrapped = WholeBatch.__new__(WholeBatch)  # without a process group
    nn.Module.__init__(wrapped)
    wrapped.module, wrapped.device_ids = net.module, [0, 1]
    monkeypatch.setattr(AnyDataParallel, "of_program", WholeBatch)
    torch.save(wrapped, tmp_path / "ours.pt")
    assert difference(tmp_path / "theirs.pt", tmp_path / "ours.pt", 0) == ""


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (("module.a", "module.b"), ("a", "b"), "they begin with `module.` under DataParallel only"),
        (("a",), ("module.a",), "they begin with `module.` under DDP only"),
        (("a", "b"), ("a", "c"), "only under DataParallel: ['b']; only under DDP: ['c']"),
        (("a",), ("a", "epoch"), "only under DDP: ['epoch']"),
        (("module.a", "epoch"), ("a", "epoch"), "they begin with `module.` under DataParallel only"),
    ],
)
def test_other_keys_are_told_by_their_side(
    tmp_path: Path, expected: tuple[str, ...], actual: tuple[str, ...], words: str
) -> None:
    files = [
        saved(tmp_path / f"{side}.pt", {"net": dict.fromkeys(keys, 1.0)}, "torch")
        for side, keys in enumerate((expected, actual))
    ]
    assert difference(*files, 1e-10) == f"has other keys at ['net']: {words}"


class Scaled(nn.Module):
    """One that is traced or scripted."""

    def __init__(self, factor: float, layer: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(2, 2), layer())
        self.register_buffer("factor", torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.body(x) * self.factor
        return scaled


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["script", "trace"])
def test_programs_are_compared_by_what_they_compute(tmp_path: Path, way: str) -> None:
    def archive(name: str, factor: float, layer: type[nn.Module]) -> Path:
        model = Scaled(factor, layer)
        made = torch.jit.script(model) if way == "script" else torch.jit.trace(model, torch.ones(1, 2))
        torch.jit.save(made, tmp_path / name)
        return tmp_path / name

    first, again = archive("a.pt", 1.0, nn.ReLU), archive("b.pt", 1.0, nn.ReLU)
    assert difference(first, again, 1e-9) == ""
    assert "tensors" in difference(first, archive("c.pt", 1.5, nn.ReLU), 1e-9)
    assert "code" in difference(first, archive("d.pt", 1.0, nn.Sigmoid), 1e-9)
