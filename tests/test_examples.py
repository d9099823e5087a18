"""Each example: train_ddp.py is today's conversion and trains as train.py does; a planted fault is found."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from verdicts import Document, forked_verdicts

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server
from tests.cli.scripts import dp2ddp

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
CONVERTED = sorted(path.parent.name for path in EXAMPLES.glob("*/train_ddp.py"))
ONE_FORWARD = (  # programs that train nothing
    "notebook_four_layers",
    "notebook_random_dataset",
    "seed_by_hand",
    "seed_four_layers",
    "seed_random_dataset",
)
TRAINING = [name for name in CONVERTED if name not in ONE_FORWARD]
QUICK = "seed_by_hand"  # that a real torchrun runs always
FEW = {"contrastive", QUICK}  # tests/living trains cifar_bn
FORKED = (3, 4)  # devices, with --all; what a real torchrun adds is seen on two


def original(name: str) -> Path:
    """What an example converts: a script, or a notebook."""
    script = EXAMPLES / name / "train.py"
    return script if script.exists() else script.with_suffix(".ipynb")


def converting(*arguments: str | Path, expect: int = 0) -> str:
    """`convert`, in this process."""
    result = CliRunner().invoke(main, ["convert", *map(str, arguments)])
    assert result.exit_code == expect, result.output
    return result.stdout


@functools.cache  # the claims about one example share its runs; see by_example
def verified(name: str, server: Server, wants_all: bool) -> dict[int, Document]:
    """The verdicts about an example, by number of devices."""
    converted = EXAMPLES / name / "train_ddp.py"
    if name != QUICK and not wants_all:
        return {2: forked_verdicts(server, original(name), converted, [2], float32=True)[0]}
    with tempfile.TemporaryDirectory() as folder:
        ended = dp2ddp(Path(folder), "verify", original(name), "--converted", converted, "-n", 2, "--json")
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    said = json.loads(ended.stdout)
    more = forked_verdicts(server, original(name), converted, FORKED, float32=True) if wants_all else []
    return {verdict["world"]: verdict for verdict in (*said["verdicts"], *more)}


def by_example(names: list[str], trains: bool = False) -> pytest.MarkDecorator:
    """One test an example; all tests of an example stay in one process, which keeps its runs (shared_runs.py)."""
    slow = [name for name in names if trains and name not in FEW]
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]
    )


@by_example(CONVERTED)
def test_the_checked_in_conversion_is_todays(name: str, tmp_path: Path) -> None:
    """If it is not: `python3 examples/convert.py`."""
    kept = EXAMPLES / name / "ddp_helpers.py"
    today = tmp_path / "train_ddp.py"
    converting(original(name), "-o", today)
    assert today.read_text(encoding="utf-8") == (EXAMPLES / name / "train_ddp.py").read_text(encoding="utf-8")
    assert (tmp_path / "ddp_helpers.py").read_text() == kept.read_text(encoding="utf-8")


@by_example(CONVERTED)
def test_a_second_conversion_finds_nothing_to_do(name: str) -> None:
    assert "nothing to convert" in converting(EXAMPLES / name / "train_ddp.py", "--check")


def test_every_example_has_a_page_about_its_difficulty() -> None:
    missing = [n for n in CONVERTED if "difficulty is" not in page(n)]
    assert missing == []


def page(name: str) -> str:
    return " ".join((EXAMPLES / name / "README.md").read_text(encoding="utf-8").split())


@pytest.mark.torchrun
@by_example(TRAINING, trains=True)
def test_an_example_trains_the_same_for_twenty_steps_or_more(
    name: str, server: Server, wants_all: bool
) -> None:
    for world, verdict in verified(name, server, wants_all).items():
        comparison = verdict["float64"]
        assert comparison["steps"] >= 20
        assert comparison["rank_steps"] == [comparison["steps"]] * world
        assert comparison["largest"]["size"] <= 1e-10, f"{world} devices: {comparison['largest']}"


@pytest.mark.torchrun
@by_example(TRAINING, trains=True)
def test_float32_is_the_same_to_the_last_bit_when_sums_are_in_rank_order(
    name: str, server: Server, wants_all: bool
) -> None:
    text = (EXAMPLES / name / "train_ddp.py").read_text(encoding="utf-8")
    for world, verdict in verified(name, server, wants_all).items():
        if "WholeBatchDDP" in text and world == 3:
            continue  # DDP divides by 3 what was multiplied by 3
        assert verdict["float32"]["identical_steps"] == verdict["float32"]["steps"], f"{world} devices"
        assert verdict["float32"]["identical"]


@pytest.mark.torchrun
@by_example(CONVERTED, trains=True)
def test_an_example_looks_the_same_from_outside(name: str, server: Server, wants_all: bool) -> None:
    for verdict in verified(name, server, wants_all).values():
        assert verdict["stdout"]["same"]
        assert verdict["printing_ranks"] == []
        assert verdict["files"]["different"] == []
        assert verdict["codes"] == [0, 0]


def test_every_key_of_a_conversion_is_documented() -> None:
    """Those of verify and bench are in a schema: tests/report/test_schema.py."""
    converted = json.loads(converting(EXAMPLES / "masked_mean" / "train.py", "--json", "--check", expect=1))
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert [key for key in sorted(keys(converted)) if f"`{key}`" not in page] == []


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


WRONG_SUMS = {
    "own-slice factor removed": ("[dist.get_rank()] * dist.get_world_size()", "[dist.get_rank()]"),
    "plain local mean": (
        "loss = masked_mean_loss(model(words), tags, mask)",
        "loss = masked_mean_loss(*[t.chunk(2)[torch.distributed.get_rank()] for t in (model(words), tags, mask)]) / 2",
    ),
}
# Where each rank loads for itself: what a Rank0Loader draws, rank 0 draws for all.
WRONG_DRAWS = {
    "another seed on one rank": (
        "torch.manual_seed(7)",
        "torch.manual_seed(7 + torch.distributed.get_rank())",
    ),
    "shuffle without lockstep": (
        "step = 0\nfor epoch",
        "torch.rand(torch.distributed.get_rank())\nstep = 0\nfor epoch",
    ),
}


CONVERSION = ("train_ddp.py", "ddp_helpers.py")
PLANTED = [
    *(pytest.param("masked_mean", *texts, id=fault) for fault, texts in WRONG_SUMS.items()),
    *(pytest.param("dropout_transformer", *texts, id=fault) for fault, texts in WRONG_DRAWS.items()),
]


@pytest.mark.torchrun
@pytest.mark.parametrize(("name", "sound", "broken"), PLANTED)
def test_a_planted_fault_is_found_in_the_first_step(
    name: str, sound: str, broken: str, server: Server, tmp_path: Path
) -> None:
    texts = {file: (EXAMPLES / name / file).read_text(encoding="utf-8") for file in CONVERSION}
    assert [text.count(sound) for text in texts.values() if sound in text] == [1]
    for file, text in texts.items():
        (tmp_path / file).write_text(text.replace(sound, broken))
    script = EXAMPLES / name / "train.py"
    (verdict,) = forked_verdicts(server, script, tmp_path / "train_ddp.py", [2], steps=2)
    assert not verdict["same"]
    first = verdict["float64"]["first"]
    assert (first["kind"].split()[0], first["step"]) == ("gradient", 0)  # masked_mean clips: before that
