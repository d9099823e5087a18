"""Projects of many files: nothing is looked at again and again, and what cannot be read is not passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.looks.start import first_act
from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import read_project
from dp2ddp.styles import STYLES
from tests.codemod.programs import program
from tests.codemod.scripts import converted, project_of

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def chain(length: int, last: str) -> dict[str, str]:
    """Modules that import the two before them: the ways from the last one to the first double with each."""
    first = {"m0": last, "m1": "import m0\n"}
    return first | {f"m{one}": f"import m{one - 1}\nimport m{one - 2}\n" for one in range(2, length)}


@pytest.mark.parametrize(("last", "joins_before"), [("", "Net"), ("print('hello')\n", "import m39")])
def test_what_runs_on_import_is_found_out_once_a_module(last: str, joins_before: str) -> None:
    act = first_act(program(f"import torch\nimport m39\n{WRAP}", **chain(40, last)).entry)
    assert act.lineno == (2 if last else 4)


def test_what_is_mentioned_is_followed_through_many_modules() -> None:
    modules = {
        f"m{one}": f"from m{one + 1} import f{one + 1}\ndef f{one}():\n    f{one + 1}()\n"
        for one in range(60)
    }
    modules["m60"] = "import os\ndef f60():\n    os.makedirs('a')\ndef unused():\n    os.makedirs('b')\n"
    conversion = convert(
        project_of(f"from m0 import f0\n{WRAP}f0()\n", **modules), Options(helpers=HelperPlace.PACKAGE)
    )

    (changed,) = (one for one in conversion.modules if one.changed)
    assert "run_on_rank0(os.makedirs, 'a')" in changed.after
    assert "    os.makedirs('b')" in changed.after


def test_forwards_that_call_those_of_their_bases_are_asked_once_a_round() -> None:
    """`super().forward(x)` may be any of them: 40 have more orders than there is time."""
    layers = "".join(
        f"class Net{one}(Base):\n    def forward(self, x):\n        return super().forward(x), x\n"
        for one in range(40)
    )
    for first, wrapper in (("[]", "WholeBatchParallel"), ("self.kept", "WholeBatchInTurns")):
        conversion = converted(f"""
import torch
class Base(torch.nn.Module):
    def forward(self, x):
        return {first}
{layers}
class Last(Net39):
    def forward(self, x):
        super().forward(x)[0].append(1)
        return x
net = torch.nn.DataParallel(Last())\n""")
        assert f"net = {wrapper}(Last())" in conversion.after


def test_a_module_with_data_parallel_that_is_no_python_stops_the_conversion(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import lib\n{WRAP}")
    (tmp_path / "lib.py").write_text("import torch\nnet = torch.nn.DataParallel(Net())\nprint 'x'\n")

    with pytest.raises(SourceError, match=r"lib\.py:3:1: Python 2"):
        convert(read_project(tmp_path / "train.py"))


def test_each_part_of_the_work_is_told_when_it_begins() -> None:
    told: list[str] = []
    convert(project_of(WRAP), begin=told.append)
    assert told == ["1 of 2: planning the changes", "2 of 2: changing the files"]


@pytest.mark.parametrize("style", STYLES)
def test_another_module_that_is_no_python_is_named(tmp_path: Path, style: str) -> None:
    (tmp_path / "train.py").write_text(f"import lib\n{WRAP}")
    (tmp_path / "lib.py").write_text("print 'x'\n")

    conversion = convert(read_project(tmp_path / "train.py"), Options(style=style))

    assert conversion.changed
    assert [one.partition("lib.py")[2][:14] for one in conversion.unread] == [":1:1: Python 2"]


def test_what_is_nested_too_deeply_for_us_is_one_line() -> None:
    text = WRAP + "if a: pass\n" + "".join(f"elif x{one}: y = 1\n" for one in range(3000))
    with pytest.raises(SourceError, match="nested too deeply to be read") as error:
        converted(text)
    assert "\n" not in str(error.value)


def test_a_module_that_wraps_when_it_is_imported() -> None:
    """`net` is handed on before it is wrapped, at the level of the module."""
    module = "import torch\nnet = Net()\nshow(net)\nnet = torch.nn.DataParallel(net)\n"
    conversion = convert(
        project_of("import lib\nlib.net(x)\n", lib=module), Options(helpers=HelperPlace.PACKAGE)
    )
    assert conversion.is_project or conversion.hazards


def test_bytes_that_were_read_are_told() -> None:
    assert SourceFile(None, "é\r\n", "latin-1", bom=False).data == b"\xe9\r\n"
