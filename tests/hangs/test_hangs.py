"""Ports that hang or fail: where each rank stands, what it waits for, where the ranks part; and nothing survives."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil
import pytest
from hangs import programs

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.report.failure_text import failure_text
from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.source.projects import read_project
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun
TIMEOUT = 4.0  # seconds without progress


def texts(folder: Path) -> dict[str, str]:
    """The programs, by name."""
    joined = {**programs.HANGS, **programs.FAILURES, **programs.EITHER}
    found = {name: programs.START + programs.JOIN + text for name, text in joined.items()}
    found |= {name: programs.START + text for name, text in programs.WITHOUT_JOINING.items()}
    original = folder / "train.py"
    original.write_text(programs.CONVERTED)
    options = Options(helpers=HelperPlace.IN_SCRIPT)  # whose lines are not the user's either
    converted = convert(read_project(original), options).entry.data.decode()
    return {**found, "spawned": programs.SPAWNED, "converted": converted}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hangs")


@pytest.fixture(scope="module")
def runs(folder: Path, server: Server) -> dict[str, Run]:
    """All of them at once: they cost nothing while they wait."""
    runnings = [
        server.start(hanging(name, text, folder / name.replace(" ", "_")))
        for name, text in texts(folder).items()
    ]
    return {Path(run.stage.folder).name.replace("_", " "): run for run in watch(runnings, TIMEOUT)}


def hanging(name: str, text: str, place: Path) -> Stage:
    place.mkdir()
    script = place / "train_ddp.py"
    script.write_text(text)
    return stage_of(script, "ddp", scratch=str(place), seed=1, starts_ranks=name == "spawned")


def told(run: Run) -> list[str]:
    """The failure, a line each, with the text of the line in place of its number."""
    lines = Path(run.stage.script).read_text().splitlines()
    text = plain(failure_text(run))
    for number in range(len(lines), 0, -1):
        text = text.replace(f"train_ddp.py:{number}", f"<{lines[number - 1].strip()}>")
    return text.splitlines()


def plain(text: str) -> str:
    """A rank that has gone is noticed by a read that ends, or by one that fails: which one, its last moment decides."""
    return text.replace(f"Read error, {GONE}", f"Connection closed by peer, {GONE}")


GONE = "since another rank has gone"


def beginnings_of(text: str) -> dict[str, list[str]]:
    """By name, what lines begin with."""
    found = {}
    for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        found[name.rstrip(":")] = [line.strip() for line in lines]
    return found


HANGS = beginnings_of("""\
saving:
    rank 0 is at <time.sleep(600)> in __getstate__, called from <torch.save(Stuck(), "model.pt")>: time
    rank 1 waits in all_gather at <dist.all_gather([torch.zeros(4).cuda() for _ in range(2)], torch.ones(4).cuda())>
    collective 2, all_gather of float32 4 at <
asynchronous:
    rank 0 waits in all_reduce, started at <work = dist.all_reduce(torch.ones(4).cuda(), async_op=True)>, at <work.
    rank 1 is at <time.sleep(600)>: time.sleep(600)
    collective 2, all_reduce of float32 4 at <
backward:
    rank 0 waits in backward: DDP's all_reduce of gradients at <model(torch.ones(4, 3).cuda()).sum()
    rank 1 is at <time.sleep(600)>: time.sleep(600)
buffers:
    rank 0 is at <time.sleep(600)>: time.sleep(600)
    rank 1 waits in forward: DDP's broadcast of buffers at <model(torch.ones(4, 3).cuda())>
constructor:
    rank 0 waits in the constructor of DistributedDataParallel at <model = DDP(net())>
    rank 1 is at <time.sleep(600)>: time.sleep(600)
    collective 2, DistributedDataParallel at <model = DDP(net())>, has been called by rank 0 and not
loader:
    rank 0 waits in forward: DDP's broadcast of buffers at <model(
    rank 1 is in a DataLoader, waiting for a batch at <for rows in DataLoader(Slow(), batch_size=2, num_w
objects:
    rank 0 is at <time.sleep(1)>: time.sleep(1)
    rank 1 waits in all_gather_object at <dist.all_gather_object(found
    collective 2, all_gather_object at <
another world:
    rank 0 waits in init_process_group for 3 ranks, and 2 were started, at <dist.init_process_group(
    rank 1 waits in init_process_group for 3 ranks, and 2 were started, at <dist.init_process_group(
never joins:
    rank 0 waits in init_process_group at <dist.init_process_group(
    rank 1 is at <time.sleep(1)>: time.sleep(1)
    collective 1, init_process_group at <
spawned:
    rank 0 waits in barrier at <dist.barrier()> in main, called from <mp.spawn(main, nprocs=2)>
    rank 1 is at <time.sleep(600)> in main, called from <mp.spawn(main, nprocs=2)>: time.sleep(600)
    collective 1, barrier at <dist.barrier()>, has been called by rank 0 and not by rank 1
converted:
    rank 0 waits in all_gather at <loss = model(torch.randn(8, 3).cuda()).pow(2).mean()>
    rank 1 is at <time.sleep(600)>: time.sleep(600)
    collective 10, all_gather of int64 639 at <loss = model(
""")
FAILURES = beginnings_of("""\
one fails:
    rank 1 failed at <raise ValueError("loss is nan")> in check: ValueError: loss is nan
    rank 0
    collective 3, all_reduce of float32 4 at <
both fail:
    rank 0 failed at <raise KeyError("model")>: KeyError: 'model'
    rank 1
killed:
    rank 1 failed at <
    rank 0
    collective 3, all_reduce of float32 4 at <
one ends:
    rank 0 failed at <dist.all_reduce(torch.ones(4).cuda())>: RuntimeError: Connection closed by peer, since
    rank 1 has ended with exit code 0
    collective 2, all_reduce of float32 4 at <
""")  # the other rank waits still, or has heard of it


def beginnings(found: list[str], wanted: list[str]) -> list[str]:
    """Of the lines behind the first, as much as is wanted."""
    return [line.strip()[: len(each)] for line, each in zip(found[1:], wanted, strict=True)]


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_told_rank_by_rank(name: str, runs: dict[str, Run]) -> None:
    found = told(runs[name])
    assert found[0].startswith("train_ddp.py: hangs in ddp mode on ")
    assert runs[name].failure.text == "nothing moved for 4 seconds"
    assert beginnings(found, HANGS[name]) == HANGS[name]


@pytest.mark.parametrize(
    ("name", "rank", "first"),
    [
        ("one fails", 1, "ValueError: loss is nan"),
        ("both fail", 0, "KeyError: 'model'"),
        ("killed", 1, "the script ended itself by signal SIGKILL"),
        ("one ends", 0, f"RuntimeError: Connection closed by peer, {GONE}"),
    ],
)
def test_a_failure_names_the_rank_that_was_first(
    name: str, rank: int, first: str, runs: dict[str, Run]
) -> None:
    failure = runs[name].failure
    assert (failure.kind, failure.rank, plain(failure.text)) == ("crash", rank, first)
    assert beginnings(told(runs[name]), FAILURES[name]) == FAILURES[name]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("other collectives", "all_reduce of float32 4", "broadcast of float32 4"),
        ("other shapes", "all_reduce of float32 4", "all_reduce of float32 300004"),
        ("one rank's barrier", "barrier", "destroy_process_group"),
    ],
)
def test_collectives_that_do_not_match_are_named(
    name: str, ours: str, theirs: str, runs: dict[str, Run]
) -> None:
    failure = runs[name].failure  # gloo waits, or fails, or aborts: as it happens
    parting = failure.parting.partition("is not the same on all ranks: ")[2]
    assert f"rank 0: {ours} at " in parting
    assert f"rank 1: {theirs} at " in parting


def test_nothing_survives(runs: dict[str, Run], folder: Path) -> None:
    """Ranks, workers of loaders, spawned ranks: also of a rank that was killed."""
    for _ in range(50):
        if not (left := running_in(folder)):
            return
        time.sleep(0.1)
    pytest.fail(f"still running: {left}")


def running_in(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder)):
                found.append(f"{process.pid} in {process.cwd()}")
        except psutil.Error:  # it has just ended, or is another user's
            continue
    return found
