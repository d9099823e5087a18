"""What a conversion leaves alone, refuses, and promises, beyond single rules."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.writing.apply import keeps_other_lines
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project
from tests.codemod.scripts import converted

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def codes(conversion: Conversion) -> list[str]:
    return [hazard.code for hazard in conversion.hazards]


class TestPlace:
    def test_nothing_that_acts_runs_before_the_join(self) -> None:
        after = converted(
            """
            import torch
            LIMIT = max(1, 2)
            log = open("log.txt", "w")
            net = torch.nn.DataParallel(Net())
            """
        ).after

        assert after.index("\ninit_distributed()") < after.index("= open_on_rank0")
        assert after.index("LIMIT") < after.index("\ninit_distributed()")

    def test_imports_that_come_late_are_below_the_helpers(self) -> None:
        after = converted(
            "import torch\nprint('hello')\nimport torch.nn as nn\nnet = nn.DataParallel(n)\n"
        ).after

        assert after.startswith(
            "import torch\nfrom dp2ddp.helpers import WholeBatchParallel, init_distributed\n"
        )

    @pytest.mark.parametrize("head", ["", '"""Words."""\n', "# a comment\n"])
    def test_a_script_that_acts_before_it_imports(self, head: str) -> None:
        after = converted(head + "print('hello')\nimport torch\nnet = torch.nn.DataParallel(n)\n").after

        helpers = "from dp2ddp.helpers import WholeBatchParallel, init_distributed\n"
        assert after.startswith(f"{head}{helpers}\n")
        assert after.index("init_distributed()") < after.index("print")


class TestHazards:
    @pytest.mark.parametrize(
        "line",
        [
            pytest.param('device = torch.device("cuda", 1)', id="torch.device of two"),
            pytest.param("x = torch.zeros(3, device=1)", id="device=1"),
            pytest.param('x = x.to("cuda:1")', id="text"),
            pytest.param("x = x.cuda(1)", id=".cuda(1)"),
            pytest.param("torch.cuda.set_device(1)", id="set_device"),
        ],
    )
    def test_a_second_device_is_a_hazard(self, line: str) -> None:
        assert codes(converted(f"{WRAP}{line}\n")) == ["DDP102"]

    @pytest.mark.parametrize(
        "line", ["torch.cuda.comm.gather(parts)", "torch.nn.parallel._functions.Gather.apply(0, 0, *parts)"]
    )
    def test_a_copy_between_devices_is_a_hazard(self, line: str) -> None:
        assert codes(converted(f"{WRAP}y = {line}\n")) == ["DDP902"]

    def test_a_device_context_means_the_rank_s_own(self) -> None:
        text = "import torch as ch\nnet = ch.nn.DataParallel(n)\nwith ch.cuda.device(0):\n    pass\n"

        assert 'with ch.cuda.device("cuda"):' in converted(text).after

    def test_the_first_of_device_ids_is_home_whatever_its_number(self) -> None:
        conversion = converted('import torch\nnet = torch.nn.DataParallel(n, [2, 3]).to("cuda:2")\n')

        assert not conversion.hazards
        assert conversion.after.endswith('net = WholeBatchParallel(n, [2, 3]).to("cuda")\n')

    def test_models_on_other_devices_are_a_hazard(self) -> None:
        text = """
            import torch
            a = torch.nn.DataParallel(a.to("cuda:0"), device_ids=[0, 1])
            b = torch.nn.DataParallel(b.to("cuda:2"), device_ids=[2, 3])
        """

        assert codes(converted(textwrap.dedent(text))) == ["DDP102"]


def test_changed_lines_are_found_out() -> None:
    assert keeps_other_lines("a\nb\nc", {2}, "a\nX\nY\nc")
    assert not keeps_other_lines("a\nb\nc", {2}, "a\nX\nC")
    assert not keeps_other_lines("f(a,\n  b)", {1}, "g(a,\n b)")
    assert keeps_other_lines("f(a,\n  b)", {1}, "g(a,\n b)", moved={2})
    assert not keeps_other_lines("f(a,\n  b)", {1}, "g(a,\n c)", moved={2})


LINES = st.sampled_from(
    [
        "x = 'é'  # \u2028",
        "if x: os.mkdir(x); y = 1",
        "for a in b:\n\tos.mkdir(a)",
        'with open(p, "w") as f: f.write(x)',
        "y = (torch . save)(x, # why\n  'a.pt')",
        "torch.load(\n    'a.pt',\n)",
        "torch.cuda.set_device(0)",
        "z = z.cuda( 0 , non_blocking = True ).to('cuda:0')",
        "def f():\n  torch.cuda.set_device(0)  # alone",
        "os.makedirs(\n  'a', exist_ok=True\n)",
        "n = torch.nn.DataParallel(m, [0,1] , dim = 0)",
        "\\\n",
        "",
        "   # comment",
        's = """\n  os.mkdir(1)\n"""',
        "print(f'{torch.cuda.device_count()}', time.strftime('%H'))",
        "w = any(os.rename(a, b) for a in b)",
        "os.system(a for a in b)",
    ]
)


@settings(deadline=None, max_examples=60)
@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_script_is_converted_without_touching_other_lines_and_only_once(
    lines: list[str], newline: str, ends: bool
) -> None:
    text = "\n".join(["import os, time, torch", "net = torch.nn.DataParallel(m)", *lines]) + "\n" * ends
    text = text.replace("\\\n\n", "\n").replace("\n", newline)
    try:
        ast.parse(text)
    except SyntaxError:
        return

    first = convert(Project(SourceFile(None, text)), Options(helpers=HelperPlace.PACKAGE))
    second = convert(Project(SourceFile(None, first.after)), Options(helpers=HelperPlace.PACKAGE))

    assert first.changed
    assert textwrap.dedent(first.after.replace(newline, "")).count("\n") == 0
    assert not second.changed
    assert not second.hazards


def test_the_only_argument_takes_its_lines_with_it() -> None:
    conversion = converted("import torch\nnet = torch.nn.DataParallel(net)\ny = x.cuda(\n    0\n)\nnet(y)\n")
    assert "y = x.cuda()\nnet(y)\n" in conversion.after


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ("import warnings; warnings.simplefilter('ignore')", True),
        ("import json; rate = 1; size = 2; import os", True),
        ("import torch; torch.manual_seed(0); rate = 1", False),  # ranks join within
    ],
)
def test_imports_that_share_a_line_with_other_statements(line: str, is_kept: bool) -> None:
    lines = converted(f"import torch\n{line}\nnet = torch.nn.DataParallel(Net())\n").after.splitlines()
    assert (line in lines) == is_kept
    helpers = next(place for place, each in enumerate(lines) if each.startswith("from dp2ddp.helpers"))
    assert 1 < helpers < lines.index("init_distributed()")
    assert lines[1].startswith(line.partition(";")[0])


def test_imports_stand_above_the_decorators_of_the_first_statement() -> None:
    text = "@decorated\ndef wrapped(net):\n    import torch\n    return torch.nn.DataParallel(net)\nwrapped(net)\n"
    after = converted(text).after
    assert "\n\n@decorated\ndef wrapped(net):\n" in after
    assert after.index("import WholeBatch") < after.index("@decorated")
