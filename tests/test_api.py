"""`import dp2ddp`: functions that return values, and raise errors of the project's own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest

import dp2ddp
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import fork_trials
from tests.cli.scripts import TRAIN, python, script
from tests.heard import Heard

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
SCRIPT = "import torch\n\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_every_name_is_there_and_in_the_documentation_or_a_result() -> None:
    assert sorted(dp2ddp.__all__) == sorted(set(dp2ddp.__all__))
    for name in dp2ddp.__all__:
        assert getattr(dp2ddp, name) is not None
    errors = [name for name in dp2ddp.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in PAGE] == []
    assert all(issubclass(getattr(dp2ddp, name), dp2ddp.Dp2DdpError) for name in errors)
    with pytest.raises(AttributeError, match="no attribute 'converted'"):
        dp2ddp.converted  # noqa: B018


def test_results_are_frozen(folder: Path) -> None:
    conversion = dp2ddp.convert("train.py")
    with pytest.raises(dataclasses.FrozenInstanceError):
        conversion.world = 3  # type: ignore[misc]
    for kind in (dp2ddp.Report, dp2ddp.Benchmark, dp2ddp.RunState):
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_a_conversion_writes_nothing_until_it_is_asked_to(folder: Path) -> None:
    conversion = dp2ddp.convert("train.py")
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert "+net = WholeBatchParallel(" in conversion.diff()
    assert dp2ddp.write_conversion(conversion) == "train_ddp.py"
    assert {path.name for path in folder.iterdir()} == {"train.py", "train_ddp.py", "ddp_helpers.py"}
    assert (folder / "train.py").read_text() == SCRIPT


def test_a_conversion_tells_what_it_does(folder: Path) -> None:
    """Of 300 modules it takes ten seconds."""
    heard = Heard()
    dp2ddp.convert("train.py", progress=heard)
    assert heard.begun == [
        "reading train.py",
        "converting train.py",
        "converting train.py: 1 of 2: planning the changes",
        "converting train.py: 2 of 2: changing the files",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"style": "modern"}, "style='modern': one of exact, idiomatic"),
        ({"select": ["DDP777"]}, "DDP777: no such rule"),
        ({"accept": ["no code"]}, "'no code' is not CODE:LINE"),
    ],
)
def test_options_that_do_not_exist_or_go_together(
    folder: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        dp2ddp.convert("train.py", **options)  # type: ignore[arg-type]
    assert isinstance(caught.value, dp2ddp.OptionError)


def test_an_answer_to_no_hazard_is_an_error(folder: Path) -> None:
    with pytest.raises(dp2ddp.UnmatchedAcceptanceError, match="DDP906:1"):
        dp2ddp.convert("train.py", accept=["DDP906:1"])


def test_what_verify_refuses_before_anything_runs(folder: Path) -> None:
    with pytest.raises(dp2ddp.OptionError, match="numbers of devices from 1 to 1024"):
        dp2ddp.verify("train.py", devices=0)
    with pytest.raises(dp2ddp.OptionError, match="--aligned needs --converted"):
        dp2ddp.verify("train.py", aligned=True)
    with pytest.raises(dp2ddp.OptionError, match="leaves none to measure"):
        dp2ddp.bench("train.py", steps=3, warm_up=3)
    with pytest.raises(dp2ddp.SourceError, match=r"missing\.py: no such file"):
        dp2ddp.verify("missing.py")
    (folder / "train.py").write_text(
        "net = DataParallelModel(net)\nfrom encoding.parallel import DataParallelModel\n"
    )
    with pytest.raises(dp2ddp.HazardError) as caught:
        dp2ddp.verify("train.py")
    assert "train.py" in caught.value.report


WRITING = {"in_place", "force"}
CONVERT_ALONE = {"diff", "check", "one_file", "imports", *WRITING}


def test_a_conversion_is_written_as_the_command_writes_it() -> None:
    command = importlib.import_module("dp2ddp.cli.convert").command
    keywords = inspect.signature(dp2ddp.write_conversion).parameters
    assert list(keywords)[:2] == ["conversion", "output"]
    assert keywords.keys() - {"conversion", "output", "remark"} == WRITING
    assert {each.name for each in command.params} >= WRITING


@pytest.mark.parametrize("name", ["convert", "verify", "bench", "check"])
def test_a_function_takes_what_its_command_takes_and_says_what_it_means(name: str) -> None:
    """Options are declared once (dp2ddp/options.py); what only shapes the output is the command's own."""
    function = getattr(dp2ddp, name)
    command = importlib.import_module(f"dp2ddp.cli.{name}").command
    of_output = {"as_json", "targets", "opens", "format", "all", "stdin_filename"}
    of_output |= CONVERT_ALONE if name == "convert" else set()
    keywords = inspect.signature(function).parameters
    of_python = {"progress", "text", "helpers", "renew_helpers"}
    assert {each.name for each in command.params} - of_output == keywords.keys() - of_python
    assert [each for each in keywords if f"    {each}: " not in function.__doc__] == ["progress"]
    with pytest.raises(TypeError, match="stepz"):
        function("train.py", stepz=3)


def test_a_number_of_devices_that_is_given_twice_is_verified_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        "dp2ddp.trial.all_trials.verify", lambda options: (asked.append(options.worlds), None)
    )
    dp2ddp.verify("train.py", devices=[2, 3, 2])
    assert asked == [(2, 3)]


def test_a_check_finds_what_is_wrong_and_what_nobody_wants_to_know(folder: Path) -> None:
    (folder / "ddp.py").write_text(
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "torch.distributed.init_process_group()\nnet = DistributedDataParallel(net)\n"
        "loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))\n"
        "for epoch in range(3):\n    for x in loader:\n        net(x).sum().backward()\n"
    )
    checked = dp2ddp.check("ddp.py")
    assert "DDP601" in {problem.code for problem in checked.problems}
    assert checked.fails
    assert "DDP601" not in {problem.code for problem in dp2ddp.check(folder, ignore=["ddp601"]).problems}
    with pytest.raises(dp2ddp.OptionError, match="DDP777"):
        dp2ddp.check("ddp.py", select=["DDP777"])
    with pytest.raises(dp2ddp.OptionError, match="--write-baseline needs --baseline FILE"):
        dp2ddp.check("ddp.py", write_baseline=True)


@pytest.mark.torchrun
def test_a_run_that_fails_leaves_what_was_found(
    folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_trials(monkeypatch, server)
    (folder / "train.py").write_text(SCRIPT + "raise KeyError('gone')\n")
    heard = Heard()
    with pytest.raises(dp2ddp.VerificationError, match="gone") as caught:
        dp2ddp.verify("train.py", devices=2, progress=heard)
    report = caught.value.report
    assert (report.same, report.outcome, report.verdicts) == (False, "failed", ())
    assert caught.value.details is not None
    assert heard.begun[0] == "converting train.py"


@pytest.mark.torchrun
@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """All of it, in its order, in a folder with a training script."""
    script(tmp_path, TRAIN)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    (tmp_path / "page.py").write_text("\n".join(blocks))
    result = python(tmp_path, "page.py")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "torchrun --standalone --nproc-per-node" in result.stdout
    assert "2 devices: 3 steps compared" in result.stdout
    assert "SAME train.py trains the same" in result.stdout
    assert re.search(r"2 devices: 0\.\d+ s a step, with DDP 0\.\d+", result.stdout)
    assert "now: reading train.py" in result.stdout
    assert result.stdout.rstrip().endswith("missing.py: no such file")
    assert (tmp_path / "report.html").exists()
