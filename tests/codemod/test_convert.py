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
from dp2ddp.codemod.plans.checks import keeps_other_lines
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project
from tests.codemod.scripts import converted, project_of

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def codes(conversion: Conversion) -> list[str]:
    return [hazard.code for hazard in conversion.hazards]


class TestWorld:
    @pytest.mark.parametrize(
        ("text", "world"),
        [
            pytest.param("net = torch.nn.DataParallel(n, [0, 1, 2])", 3, id="list"),
            pytest.param("net = torch.nn.DataParallel(n, device_ids=range(4))", 4, id="range"),
            pytest.param("ids = [0, 1]\nnet = torch.nn.DataParallel(n, device_ids=ids)", 2, id="name"),
            pytest.param("net = torch.nn.DataParallel(n, device_ids=[a, b])", 2, id="two names"),
            pytest.param("net = torch.nn.DataParallel(n)", None, id="all"),
        ],
    )
    def test_the_launch_line_has_as_many_ranks_as_devices(self, text: str, world: int | None) -> None:
        conversion = converted(f"import torch\n{text}\n")

        assert conversion.world == world
        assert f"--nproc-per-node {world or 'gpu'} " in conversion.launch

    def test_device_ids_that_cannot_be_read_are_noted(self) -> None:
        conversion = converted("import torch\nnet = torch.nn.DataParallel(n, device_ids=args.gpus)\n")

        assert "start one rank for each" in conversion.notes[0].because

    def test_sets_of_names_ask_for_a_hash_seed(self) -> None:
        assert converted(WRAP + "for name in set(names):\n    pass\n").launch.startswith(
            "PYTHONHASHSEED=0 torchrun"
        )


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

    def test_ranks_join_behind_visible_devices_in_the_function_that_starts(self) -> None:
        conversion = converted(
            """
            import argparse, os, torch
            def main(args):
                os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
                print(torch.cuda.device_count())
                net = torch.nn.DataParallel(Net())
            if __name__ == "__main__":
                args = argparse.ArgumentParser().parse_args()
                main(args)
            """
        )

        assert not conversion.hazards
        assert "= args.gpu\n    init_distributed()\n    print(" in conversion.after

    def test_ranks_join_in_the_second_start_of_a_script_that_starts_itself_anew(self) -> None:
        conversion = converted(
            """
            import os, sys
            if os.environ.get("PYTHONHASHSEED") != "0":
                os.environ["PYTHONHASHSEED"] = "0"
                os.execv(sys.executable, [sys.executable, *sys.argv])
            import torch
            torch.manual_seed(0)
            net = torch.nn.DataParallel(Net())
            """
        )

        assert conversion.after.index("os.execv") < conversion.after.index("init_distributed()")

    @pytest.mark.parametrize("before", ["print(1)", "torch.manual_seed(1)", "os.mkdir('a')", "helper()"])
    def test_visible_devices_that_come_too_late_go_into_the_launch_line(self, before: str) -> None:
        conversion = converted(
            f"""
            import os, torch
            def helper():
                print(1)
            {before}
            os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
            net = torch.nn.DataParallel(Net())
            """
        )

        assert [note.code for note in conversion.notes] == ["DDP101"]
        assert conversion.launch.startswith(
            "CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node 2 "
        )

    @pytest.mark.parametrize("head", ["", '"""Words."""\n', "# a comment\n"])
    def test_a_script_that_acts_before_it_imports(self, head: str) -> None:
        after = converted(head + "print('hello')\nimport torch\nnet = torch.nn.DataParallel(n)\n").after

        helpers = "from dp2ddp.helpers import WholeBatchParallel, init_distributed\n"
        assert after.startswith(f"{head}{helpers}\n")
        assert after.index("init_distributed()") < after.index("print")

    def test_helpers_do_not_hide_names_of_the_script(self) -> None:
        text = WRAP + "count_ranks = torch.cuda.device_count()\n"
        after = converted(text, helpers=HelperPlace.BESIDE).after

        assert (
            "from ddp_helpers import WholeBatchParallel, count_ranks as count_ranks_, init_distributed\n"
            in after
        )
        assert "count_ranks = count_ranks_()" in after

    def test_a_script_in_which_nothing_runs_is_not_converted(self) -> None:
        conversion = converted("import torch\ndef build():\n    return torch.nn.DataParallel(Net())\n")

        assert not conversion.changed
        assert codes(conversion) == ["DDP101"]

    def test_helpers_of_an_earlier_conversion_stay_as_they_are(self) -> None:
        first = converted(
            WRAP + "torch.save(net.state_dict(), 'a.pt')\n", helpers=HelperPlace.IN_SCRIPT
        ).after
        end = "# --- end of the copied helpers"

        second = converted(
            first + "other = torch.nn.DataParallel(Net())\ntorch.save(other.module, 'b.pt')\n",
            helpers=HelperPlace.IN_SCRIPT,
        )

        assert second.after.split(end)[0] == first.split(end)[0]
        assert second.after.endswith(
            "other = WholeBatchParallel(Net())\nsave_on_rank0(other.module, 'b.pt')\n"
        )
        assert not second.hazards


class TestHazards:
    def test_a_wrap_in_a_local_module_is_not_overlooked(self) -> None:
        module = "import torch\ndef build():\n    return torch.nn.DataParallel(Net())\n"

        conversion = convert(project_of("from models import build\nnet = build()\n", models=module))

        assert [(one.code, one.file, one.line) for one in conversion.edits] == [
            ("DDP101", None, 2),
            ("DDP201", "models.py", 3),
        ]

    def test_a_function_that_a_forward_calls_may_not_write(self) -> None:
        text = """
        import torch
        def dump(x):
            torch.save(x, "x.pt")
        class Net(torch.nn.Module):
            def forward(self, x):
                dump(x)
                return x
        net = torch.nn.DataParallel(Net())
        """

        assert codes(converted(text)) == ["DDP502"]

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

    def test_a_device_context_means_the_rank_s_own(self) -> None:
        text = "import torch as ch\nnet = ch.nn.DataParallel(n)\nwith ch.cuda.device(0):\n    pass\n"

        assert 'with ch.cuda.device("cuda"):' in converted(text).after

    def test_the_first_of_device_ids_is_home_whatever_its_number(self) -> None:
        conversion = converted('import torch\nnet = torch.nn.DataParallel(n, [2, 3]).to("cuda:2")\n')

        assert not conversion.hazards
        assert conversion.after.endswith('net = WholeBatchParallel(n, [2, 3]).to("cuda")\n')

    def test_an_edit_in_a_long_format_string_is_made_or_refused_but_never_wrong(self) -> None:
        text = f'{WRAP}print(f"""\n  {{x}} on\n  {{torch.cuda.device_count()}} GPUs\n""")\n'

        conversion = converted(text)

        assert bool(conversion.hazards) != ("{count_ranks()} GPUs" in conversion.after)
        ast.parse(conversion.after)


def test_rules_can_be_left_out() -> None:
    after = converted(WRAP + "x = x.cuda(0)\n", ignore=("DDP102",)).after

    assert after.endswith("x = x.cuda(0)\n")


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

    first = convert(Project(SourceFile(None, text, newline=newline)), Options(helpers=HelperPlace.PACKAGE))
    second = convert(
        Project(SourceFile(None, first.after, newline=newline)), Options(helpers=HelperPlace.PACKAGE)
    )

    assert first.changed
    assert textwrap.dedent(first.after.replace(newline, "")).count("\n") == 0
    assert not second.changed
    assert not second.hazards


def test_the_only_argument_takes_its_lines_with_it() -> None:
    conversion = converted("import torch\nnet = torch.nn.DataParallel(net)\ny = x.cuda(\n    0\n)\nnet(y)\n")
    assert "y = x.cuda()\nnet(y)\n" in conversion.after


def test_imports_stand_above_the_decorators_of_the_first_statement() -> None:
    text = "@decorated\ndef wrapped(net):\n    import torch\n    return torch.nn.DataParallel(net)\nwrapped(net)\n"
    after = converted(text).after
    assert "\n\n@decorated\ndef wrapped(net):\n" in after
    assert after.index("import WholeBatch") < after.index("@decorated")
