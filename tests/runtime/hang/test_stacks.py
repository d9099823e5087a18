"""Where a rank stands, read from what faulthandler writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.runtime.hang import stacks
from dp2ddp.runtime.hang.stacks import Ending, read_position
from dp2ddp.source import helper_module

BOOT = Path(stacks.__file__).parents[1] / "process" / "boot.py"
WAITING = f"""Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f02 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2900 in all_reduce
  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/home/user/train.py", line 31 in step
  File "/home/user/train.py", line 40 in <module>
  File "{BOOT}", line 90 in run_as_main
"""


def test_a_rank_in_a_collective() -> None:
    position = read_position(WAITING, rank=2)
    assert str(position) == "rank 2 waits in all_reduce at train.py:31 in step, called from train.py:40"


def test_a_rank_in_no_collective() -> None:
    text = "".join(line for line in WAITING.splitlines(keepends=True) if "torch/distributed" not in line)
    position = read_position(text, rank=0)
    assert position.collective is None


def test_the_newest_of_several_dumps_counts() -> None:
    position = read_position(WAITING + WAITING.replace("line 31", "line 77"), rank=0)
    assert position.frames[0].line == 77


def test_a_rank_inside_a_helper_is_told_from_one_that_waits_for_it(tmp_path: Path) -> None:
    helpers, script = tmp_path / "ddp_helpers.py", tmp_path / "train.py"
    helpers.write_text(f"{helper_module.OPENING}...\n")
    script.write_text("\n".join(["def measure():", "    dist.barrier()", "answer = ask_rank0(measure)"]))
    inner = "Current thread 0x01 (most recent call first):\n"
    call = '  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in {}\n'
    outer = f'  File "{helpers}", line 2 in ask_rank0\n  File "{script}", line 3 in <module>\n'
    outer += f'  File "{BOOT}", line 90 in run_as_main\n'
    measures = f'  File "{script}", line 2 in measure\n'
    first = read_position(inner + call.format("barrier") + measures + outer, rank=0)
    other = read_position(
        inner + call.format("broadcast") + f'  File "{helpers}", line 7 in tell_all\n' + outer, rank=1
    )
    assert (
        str(first)
        == "rank 0 waits in barrier at train.py:2 in measure, called from train.py:3, inside ask_rank0"
    )
    assert (first.helper, first.inside) == ("ask_rank0", "train.py:3")
    assert str(other) == "rank 1 waits in ask_rank0's broadcast at train.py:3"


def test_a_rank_that_never_answered() -> None:
    assert read_position("", rank=0) is None


def test_the_copied_helpers_are_no_place_of_the_users(tmp_path: Path) -> None:
    lines = [
        "import torch",
        f"{helper_module.HELPERS_START} (rows)",
        "def gather(): ...",
        helper_module.HELPERS_END,
        "gather()",
    ]
    converted = tmp_path / "train_ddp.py"
    converted.write_text("\n".join(lines))
    text = (
        f'Current thread 0x01 (most recent call first):\n  File "{converted}", line 3 in gather\n'
        f'  File "{converted}", line 5 in <module>\n  File "{BOOT}", line 90 in run_as_main\n'
    )
    position = read_position(text, rank=0)
    assert str(position) == "rank 0 is at train_ddp.py:5: gather()"


def test_a_module_of_helpers_is_no_place_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "ddp_helpers.py").write_text(
        f"{helper_module.OPENING} (edition 0)." + '"""\n\ndef gather(): ...\n'
    )
    (tmp_path / "helpers.py").write_text("def gather(): ...\n")
    assert not stacks.is_users(str(tmp_path / "ddp_helpers.py"), 3)
    assert stacks.is_users(str(tmp_path / "helpers.py"), 1)


def test_no_frame_of_ours_is_the_users() -> None:
    ours = Path(stacks.__file__).parents[2] / "trace" / "recorder.py"
    assert not stacks.is_users(str(ours), 150)
    assert stacks.is_users("/home/user/train.py", 31)


def test_files_that_hook_into_the_script_are_there() -> None:
    """A script's own line is looked for behind them: one that was renamed would hide it."""
    assert [path for path in stacks._HOOKS if not Path(path).exists()] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "to() got (int), but expected one of:\n * (Tensor tensor)\n",
            "TypeError: to() got (int), but expected one of:",
        ),
        ("Caught TypeError in replica 0.\nTraceback:\nValueError: no rows\n", "ValueError: no rows"),
        ("", "TypeError"),
    ],
)
def test_an_error_of_several_lines_is_told_by_the_one_that_names_it(text: str, told: str) -> None:
    error = TypeError(text) if text else TypeError()
    assert Ending.by(error, 1).error == told
