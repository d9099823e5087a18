"""Lines and files: what is the same, what is rounding, what a clock says, and what is different."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.comparison.contents import Spelling, digest
from dp2ddp.comparison.output_comparison import OwnCode, compare_files, compare_text
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.copies.linked import copy_by_links

SAME = {
    "equal": ("loss 0.25\n", "loss 0.25\n"),
    "rounding": ("loss 0.12345678901234567\n", "loss 0.12345678901234591\n"),
    "seconds": ("epoch 1 took 3.1s\n", "epoch 1 took 4.0s\n"),
    "time of day": ("12:03:55 begin\n", "12:03:58 begin\n"),
    "name of a folder": ("to runs/20261121-155241\n", "to runs/20261121-155303\n"),
    "iterations per second": ("[3/9] 31.2 it/s\n", "[3/9] 28.9 it/s\n"),
    "frames per second": ("reward 1.0 (23 fps), FPS 310\n", "reward 1.0 (15 fps), FPS 280\n"),
    "a number before it": ("updates 9 fps 64\n", "updates 9 fps 26\n"),
    "time.asctime": ("Sat Nov 21 17:25:30 2026 go\n", "Sun Nov 22 00:00:01 2026 go\n"),
    "iterations of a second": ("1.8627 iters/s, loss 2\n", "1.2249 iters/s, loss 2\n"),
    "per second": ("Loss: 2.3 Tokens per Sec: 59.18\n", "Loss: 2.3 Tokens per Sec: 26.8\n"),
    "of a batch": (
        "| ms/batch 31.29 | sec/it: 0.4 | ppl 2.5\n",
        "| ms/batch  9.01 | sec/it: 0.2 | ppl 2.5\n",
    ),
    "in a sentence": ("total time is 0.09\n", "total time is 0.17\n"),
    "number as text": ("{'eval_runtime': '0.2'}\n", "{'eval_runtime': '0.31'}\n"),
    "room": ("  eval_steps_per_second =    2.95\n", "  eval_steps_per_second =   29.80\n"),
    "operations": ("total_flos = 2GF\n", "total_flos = 31MF\n"),
    "ignite's times": ("{'COMPLETED': 0.081594}\n", "{'COMPLETED': 1.50}\n"),
    "rich": ("Epoch 1 ━━━━━ 3/3 68.47it/s v: 0.1 \n", "Epoch 1 ━━━━━━ 3/3 4.09it/s v: 0.1\n"),
    "redrawn": ("|## | 9% [1/3 00:00<00:01]\r|###| [3/3 00:01<00:00]\n", "|###| [3/3 00:07<00:00]\n"),
    "time for epoch": ("Time for epoch = 12.5 (s)\n", "Time for epoch = 9.1 (s)\n"),
    "dur": ("loss 2, dur_total : 1.05\n", "loss 2, dur_total : 4.49\n"),
    "time and data": ("Time:4.65 Data:0.13  Cls:2.5\n", "Time:1.83 Data:0.07  Cls:2.5\n"),
    "seconds and milliseconds": ("Step: 586ms | Tot: 1m2s\n", "Step: 2s295ms | Tot: 1m14s\n"),
    "meters of time": (
        "[1/4]\tTime  0.312 ( 0.298)\tData  0.010 ( 0.009)\tLoss 2.5 (2.4)\n",
        "[1/4]\tTime  0.412 ( 0.301)\tData  0.012 ( 0.011)\tLoss 2.5 (2.4)\n",
    ),
    "time cost": ("fg=(9/55), time cost: 1.632407\n", "fg=(9/55), time cost: 6.29\n"),
    "with loading": ("time (data): 2.041 (1.142)]\n", "time (data): 0.652 (0.1)]\n"),
    "Trainer's": (
        "{'train_runtime': 3.6465, 'train_steps_per_second': 2.742, 'epoch': 1.0}\n",
        "{'train_runtime': 10.842, 'train_steps_per_second': 0.922, 'epoch': 1.0}\n",
    ),
    "JSON": ('{"time": 1.5, "samples_per_second": 640.2}\n', '{"time": 2e-05, "samples_per_second": 31}\n'),
    "named rates": ("throughput=640.25 step_time_ms: 100.1\n", "throughput=31.5 step_time_ms: 99\n"),
    "time to go": ("[eta: 0:00:05, lr 0.1]\n", "[eta: 0:00:14, lr 0.1]\n"),
    "less to go than none": ("[eta: 0:00:00, lr 1]\n", "[eta: -1 day, 23:59:57, lr 1]\n"),
    "a column": (
        "epoch,loss,epoch_time\n0,2.5,31.2\n1,2.4,30.9\n",
        "epoch,loss,epoch_time\n0,2.5,12.1\n1,2.4,9.0\n",
    ),
    "a column of a log": (
        "[2026/11/22 13:37:04] - Epoch \t Train Time \t LR \t \t Acc\n"
        "[2026/11/22 13:37:09] - 0 \t 4.2 \t \t 0.1 \t 0.5\n",
        "[2026/11/22 13:41:04] - Epoch \t Train Time \t LR \t \t Acc\n"
        "[2026/11/22 13:41:18] - 0 \t 14.3 \t \t 0.1 \t 0.5\n",
    ),
    "meters in short": ("BT 0.3 (0.2)\tDT 0.1 (0.1)\n", "BT 0.4 (0.3)\tDT 0.2 (0.1)\n"),
}


@pytest.mark.parametrize(("expected", "actual"), SAME.values(), ids=SAME)
def test_lines_that_are_the_same(expected: str, actual: str) -> None:
    assert compare_text(expected, actual, FLOAT64).same


DIFFERENT = {
    "another number": ("loss 0.25\n", "loss 0.26\n"),
    "a number of each step": ("loss/step 0.25\n", "loss/step 0.26\n"),
    "a count is exact": ("correct 41\n", "correct 42\n"),
    "another column": ("epoch,loss,time\n0,2.5,31.2\n", "epoch,loss,time\n0,2.6,12.1\n"),
    "no row of the table": ("loss,time\n2.5,31.2,4\n", "loss,time\n2.5,12.1,4\n"),
    "how often": ("loss,times\n2.5,31\n", "loss,times\n2.5,12\n"),
    "one line more": ("a\n", "a\na\n"),
    "one line less": ("a\nb\n", "a\n"),
    "nan": ("loss 1.5\n", "loss nan\n"),
    "not the clock's number": ("epoch 1 took 3.1s\n", "epoch 2 took 3.1s\n"),
    "not the time's": ("Time 0.3 (0.2) Loss 2.5 (2.4)\n", "Time 0.3 (0.2) Loss 2.5 (2.5)\n"),
    "a meter of data alone": ("Data 0.3 (0.2)\n", "Data 0.4 (0.2)\n"),
    "data away from time": ("Time:4.6 Loss:2 Data:0.1\n", "Time:4.6 Loss:2 Data:0.2\n"),
    "a count of steps": ("time_steps: 40\n", "time_steps: 41\n"),
    "a loss beside a time": ("{'time': 2.0, 'loss': 2.5}\n", "{'time': 2.0, 'loss': 2.6}\n"),
    "no rate of a clock": ("40 img/sample\n", "41 img/sample\n"),
    "per what is no second": ("per step: 40.5\n", "per step: 41.5\n"),
    "millions": ("3M parameters\n", "4M parameters\n"),
    "loss as text": ("{'eval_loss': '0.2'}\n", "{'eval_loss': '0.31'}\n"),
    "count of what is completed": ("COMPLETED: 3\n", "COMPLETED: 4\n"),
    "drawn over by itself": ("\r[1/2] loss 1\r[2/2] loss 2\n", "\r[1/2] loss 3\r[2/2] loss 2\n"),
    "drawn last": ("[3/3 00:01<00:00, loss=1]\n", "[3/3 00:07<00:00, loss=2]\n"),
}


@pytest.mark.parametrize(("expected", "actual"), DIFFERENT.values(), ids=DIFFERENT)
def test_lines_that_differ(expected: str, actual: str) -> None:
    assert not compare_text(expected, actual, FLOAT64).same


def test_what_was_let_pass_is_counted() -> None:
    found = compare_text("a 0.1000000000000001\nb 1.5s\n", "a 0.1000000000000002\nb 2.5s\n", FLOAT64)
    assert (found.rounded, found.masked) == (1, 1)


def test_another_order_is_told_apart_from_other_lines() -> None:
    assert compare_text("a\nb\n", "b\na\n", FLOAT64).only_order
    assert not compare_text("a\nb\n", "b\nc\n", FLOAT64).only_order


def leave(
    tmp_path: Path, expected: dict[str, str], actual: dict[str, str], code: OwnCode | None = None
) -> list[str]:
    """What differs after two runs have written these files."""
    (tmp_path / "original").mkdir(parents=True)
    left = []
    for name, files in (("dp", expected), ("ddp", actual)):
        workspace = copy_by_links(tmp_path / "original", tmp_path / name, {}, (), ())
        for path, text in files.items():
            (workspace.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace.folder / path).write_text(text)
        left.append(workspace.left_behind())
    compared = compare_files(left[0], left[1], FLOAT64, code)
    return [f"{each.path} {each.what}" for each in compared.different]


def test_the_same_files_are_the_same(tmp_path: Path) -> None:
    assert leave(tmp_path, {"log/a.csv": "1,2"}, {"log/a.csv": "1,2"}) == []


def test_a_file_on_one_side_is_a_difference(tmp_path: Path) -> None:
    assert leave(tmp_path, {"a": ""}, {"a": "", "b": ""}) == ["b is written by DDP only"]


@pytest.mark.parametrize("name", ["data/lock.mdb", "a.mdb-lock", "runs.db-shm"])
def test_which_processes_had_a_store_open_is_no_difference(tmp_path: Path, name: str) -> None:
    assert leave(tmp_path, {name: "process 1"}, {name: "process 2"}) == []
    assert leave(tmp_path / "other", {"data/data.mdb": "a"}, {"data/data.mdb": "b"}) != []


def test_another_line_in_a_text_file_is_named(tmp_path: Path) -> None:
    (found,) = leave(tmp_path, {"a.csv": "1\n2\n"}, {"a.csv": "1\n3\n"})
    assert found == "a.csv line 2: '2' under DataParallel, '3' under DDP"


def test_a_kept_copy_of_the_code_is_of_the_converted_code(tmp_path: Path) -> None:
    code = OwnCode({digest(b"c"): digest(b"o")}, {"train_ddp.py": "train.py"})
    assert leave(tmp_path / "a", {"util.py.backup": "o"}, {"util.py.backup": "c"}, code) == []
    assert leave(tmp_path / "b", {"log/train.py": "o"}, {"log/train_ddp.py": "c"}, code) == []
    (found,) = leave(tmp_path / "c", {"util.py": "o"}, {"util.py": "d"}, code)
    assert found == "util.py line 1: 'o' under DataParallel, 'd' under DDP"


def test_tensorboard_files_are_counted_by_folder(tmp_path: Path) -> None:
    one = {"runs/events.out.tfevents.1.host.7.0": "x"}
    two = {"runs/events.out.tfevents.2.host.8.0": "y"}
    assert leave(tmp_path / "a", one, two) == []
    (found,) = leave(tmp_path / "b", one, {**one, **two})
    assert found == "runs has 2 TensorBoard files, 1 under DataParallel"


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param("runs/20261121-155241/a.csv", "runs/20261121-155303/a.csv", id="date and time"),
        pytest.param("runs/Nov21_15-52-41_host/a.csv", "runs/Nov21_15-53-03_host/a.csv", id="TensorBoard"),
        pytest.param("net_2026-11-21_15-52-41.txt", "net_2026-11-21_15-53-03.txt", id="with dashes"),
        pytest.param("ep0_1795276362.txt", "ep0_1795276399.txt", id="seconds since 1970"),
        pytest.param("kit,b4/11-21-17:43/a.csv", "kit,b4/11-21-17:44/a.csv", id="day and minute"),
        pytest.param("log-15_52_41.123.txt", "log-15_53_03.123.txt", id="time of day"),
        pytest.param("saved/1121_174505/a.csv", "saved/1121_174506/a.csv", id="month, day and time"),
    ],
)
def test_names_that_say_when_are_the_same_file(tmp_path: Path, expected: str, actual: str) -> None:
    assert leave(tmp_path / "a", {expected: "1"}, {actual: "1"}) == []
    (found,) = leave(tmp_path / "b", {expected: "1"}, {actual: "2"})
    assert found == f"{expected} line 1: '1' under DataParallel, '2' under DDP"


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param("epoch_10.txt", "epoch_11.txt", id="a count"),
        pytest.param("acc_0.9312.txt", "acc_0.9412.txt", id="a number"),
        pytest.param("seed_20231.txt", "seed_20232.txt", id="a seed"),
        pytest.param("net_00000100.txt", "net_00000200.txt", id="a step"),
    ],
)
def test_names_that_differ_in_what_is_no_clock(tmp_path: Path, expected: str, actual: str) -> None:
    assert len(leave(tmp_path, {expected: "1"}, {actual: "1"})) == 2


def test_one_file_for_two_is_a_difference_whatever_the_time(tmp_path: Path) -> None:
    expected = {"a_1795276362.txt": ""}
    assert len(leave(tmp_path, expected, {"a_1795276370.txt": "", "a_1795276371.txt": ""})) == 3


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()


def test_files_may_name_the_folder_and_the_script(tmp_path: Path) -> None:
    left = []
    for name in ("dp", "ddp"):
        (tmp_path / name).mkdir()
        workspace = copy_by_links(tmp_path / name, tmp_path / f"{name}-copy", {}, (), ())
        script = "train.py" if name == "dp" else "train_ddp.py"
        (workspace.folder / "argv.txt").write_text(f"['{script}'] in {workspace.folder}/runs")
        left.append(workspace.left_behind())
    spellings = [Spelling(((str(one.folder), "/home/me"), ("train_ddp.py", "train.py"))) for one in left]

    plain = compare_files(*left, FLOAT64)
    spelled = compare_files(*left, FLOAT64, None, (spellings[0], spellings[1]))

    assert (plain.same, spelled.same) == (False, True)


def test_each_sort_of_line_that_differs_is_reported_once() -> None:
    epochs = [f"epoch {epoch}: loss 0.{epoch}\nvalid accuracy 0.5\n" for epoch in range(3)]
    expected = "".join(epochs) + "best 0.5\n"
    actual = "start on rank 0\n" + expected.replace("loss 0.", "loss 1.").replace("best 0.5", "best 0.6")
    found = compare_text(expected, actual, FLOAT64)
    assert found.first == (1, "epoch 0: loss 0.0", "start on rank 0")
    assert found.others == ((7, "best 0.5", "best 0.6"),)  # one line too many hides nothing behind it
    again = compare_text(
        expected, expected.replace("loss 0.", "loss 1.").replace("best 0.5", "best 0.6"), FLOAT64
    )
    assert again.others == ((7, "best 0.5", "best 0.6"),)
    assert compare_text("a\nb 1\nc 2\n", "a\nb 1\n", FLOAT64).others == ()


@pytest.mark.parametrize("there", [True, False])
def test_links_without_a_file_are_compared_by_where_they_lead(tmp_path: Path, there: bool) -> None:
    """`latest -> run5`, `best -> step_3.pt` that is deleted: reading one as a file once ended verify."""
    left = []
    for name, target in (("dp", "run1"), ("same", "run1"), ("other", "run2")):
        (tmp_path / name / "original").mkdir(parents=True)
        workspace = copy_by_links(tmp_path / name / "original", tmp_path / name / "copy", {}, (), ())
        for folder in ("run1", "run2") if there else ():
            (workspace.folder / folder).mkdir()
        (workspace.folder / "latest").symlink_to(target)
        left.append(workspace.left_behind())
    assert compare_files(left[0], left[1], FLOAT64).different == ()
    (found,) = compare_files(left[0], left[2], FLOAT64).different
    assert (found.path, found.what) == ("latest", "leads to run2 instead of run1")
