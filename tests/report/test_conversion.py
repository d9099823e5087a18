"""What a person and a program are told about a conversion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.report.conversion_report import conversion_json, conversion_text, verdict
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project, read_project
from tests.codemod.scripts import converted

SCRIPT = "import os\nimport torch\nnet = torch.nn.DataParallel(Net(), [0, 1])\nos.mkdir('out')\nname = breakpoint()\n"
HARMLESS = SCRIPT.replace("breakpoint()", "1")


def report(conversion: Conversion) -> list[str]:
    return conversion_text(conversion, "train_ddp.py").splitlines()


def test_it_begins_with_the_verdict_and_ends_with_the_launch_line() -> None:
    assert report(converted(SCRIPT))[0] == "<stdin> -> train_ddp.py: 3 edits, 1 hazard open"
    lines = report(converted(HARMLESS))
    assert lines[0] == "<stdin> -> train_ddp.py: 3 edits"
    assert lines[-1] == "start it with: torchrun --standalone --nproc-per-node 2 train_ddp.py"


@pytest.mark.parametrize("written", [None, "train_ddp.py"])
def test_while_a_hazard_is_open_nothing_is_launched(written: str | None) -> None:
    assert "start it with" not in conversion_text(converted(SCRIPT), written)


def test_each_edit_has_a_line_a_reason_and_a_code() -> None:
    assert "  line 4:  rank 0 makes this call, once for all ranks (DDP503)" in report(converted(SCRIPT))


def test_lines_with_the_same_reason_stand_together() -> None:
    text = HARMLESS + "os.mkdir('again')\n"
    assert "  lines 4, 6:  rank 0 makes this call, once for all ranks (DDP503)" in report(converted(text))
    assert report(converted(text))[0].endswith(": 4 edits")


def test_an_ordinary_script_takes_ten_lines() -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "cifar_bn" / "train.py"
    conversion = convert(read_project(example))
    assert len(conversion.edits) >= 7
    assert len(report(conversion)) <= 10


def test_a_hazard_has_a_place_and_an_advice() -> None:
    lines = report(converted(SCRIPT))

    place = lines.index("hazard  <stdin>:5:8: breakpoint() waits for a person (DDP906)")
    assert lines[place + 1] == "        take it out"


def test_a_path_with_a_blank_is_quoted_in_the_launch_line() -> None:
    text = conversion_text(converted(HARMLESS), "my script.py")

    assert text.endswith("--nproc-per-node 2 'my script.py'\n")


def test_a_script_whose_own_name_has_a_blank_is_named_once() -> None:
    text = conversion_text(convert(Project(SourceFile(Path("a b.py"), HARMLESS))), "a b_ddp.py")

    assert text.endswith("\nstart it with: torchrun --standalone --nproc-per-node 2 'a b_ddp.py'\n")


def test_a_setting_with_a_blank_stays_a_setting() -> None:
    text = SCRIPT + "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0, 1'\n"
    launch = convert(Project(SourceFile(Path("train.py"), text))).launch_of("out.py")

    assert launch == "CUDA_VISIBLE_DEVICES='0, 1' torchrun --standalone --nproc-per-node 2 out.py"


def test_nothing_to_convert_is_one_line() -> None:
    assert verdict(converted("import torch\n"), None) == "<stdin>: nothing to convert"


def test_the_document_of_an_unchanged_script_has_the_same_keys() -> None:
    changed = json.loads(conversion_json(converted(SCRIPT), None))
    unchanged = json.loads(conversion_json(converted("import torch\n"), None))

    assert unchanged.keys() == changed.keys()
    assert unchanged["launch"] is None
    assert unchanged["changed"] is False


def test_the_difference_shows_the_script_and_the_report_names_its_helpers() -> None:
    conversion = converted(SCRIPT, helpers=HelperPlace.BESIDE)

    lines = conversion.diff().splitlines()
    added = [line for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert len(added) <= 6  # two of them empty
    assert conversion.helpers
    count = conversion.helpers.after.count("\n")
    assert f"  helpers: ddp_helpers.py beside it, {count:,} lines" in conversion_text(conversion, None)
    said = json.loads(conversion_json(conversion, None))["helpers"]
    assert (said["file"], said["lines"], said["kept"]) == ("ddp_helpers.py", count, [])


def test_an_import_that_may_be_the_users_own_is_named_with_what_to_do() -> None:
    text = "import numpy\nimport tqdm\nimport fancy_layers\n" + SCRIPT
    project = Project(SourceFile(Path("train.py"), text), missing=("fancy_layers", "numpy", "tqdm"))

    lines = report(convert(project))

    place = lines.index("not found, so not looked at: fancy_layers")  # not numpy, not tqdm: they are known
    assert "its folder in PYTHONPATH" in lines[place + 1]


def test_packages_that_are_not_installed_are_nothing_to_say() -> None:
    project = Project(SourceFile(Path("train.py"), SCRIPT), missing=("numpy", "tqdm"))

    assert "not found" not in conversion_text(convert(project), None)
    assert json.loads(conversion_json(convert(project), None))["missing"] == []
