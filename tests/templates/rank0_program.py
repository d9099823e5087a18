"""What rank 0 does for all, with each kind of thing that may go wrong on it alone: program.py FOLDER, on forked ranks.

Each check returns facts, which test_rank0.py compares with what one process finds.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dp2ddp.templates.broadcast import exchange_numbers, tell_all
from dp2ddp.templates.checkpoints import save_on_rank0
from dp2ddp.templates.files import open_by_on_rank0, open_on_rank0, open_path_on_rank0, write_on_rank0
from dp2ddp.templates.guard import refuse_own_files
from dp2ddp.templates.rank0 import TemporaryFolderOnRank0, ask_rank0, rank0_first, run_on_rank0
from dp2ddp.templates.ranks import end_distributed, init_distributed, own_rank
from dp2ddp.templates.trackers import library_on_rank0, make_handler_on_rank0, make_on_rank0

FOLDER = Path(sys.argv[1])
FULL_DISK = "/dev/full"


def error_of(work: Callable[[], Any]) -> str:
    """What it raises; then whether the ranks still come together."""
    try:
        work()
        told = "none"
    except Exception as error:
        told = type(error).__name__
    return f"{told} {[number for (number,) in exchange_numbers([7])] == [7] * torch.distributed.get_world_size()}"


def in_block(count: int) -> None:
    with open_on_rank0(FULL_DISK, "w") as file:
        for _ in range(3):
            file.write("x" * count)
            file.flush()
            exchange_numbers([1])  # training goes on in it


def left_open() -> None:
    file = open_on_rank0(FULL_DISK, "w")
    file.write("x")
    file.close()


def a_full_disk() -> Any:
    return [
        error_of(lambda: in_block(10)),
        error_of(lambda: in_block(100_000)),
        error_of(left_open),
        error_of(lambda: saved_into_open_file()),
        error_of(lambda: open_on_rank0(FOLDER / "no" / "thing", "w")),
        error_of(lambda: open_on_rank0(FOLDER / "nothing", "r+")),
        error_of(lambda: save_on_rank0(torch.zeros(3), FOLDER / "no" / "thing.pt")),
        error_of(lambda: make_on_rank0(logging.FileHandler, FOLDER / "no" / "thing.log")),
    ]


def saved_into_open_file() -> None:
    with open_on_rank0(FULL_DISK, "wb") as file:
        save_on_rank0(torch.zeros(100_000), file)


def read_and_written() -> Any:
    path, found = FOLDER / "log.txt", []
    for mode in ("w+", "a+", "r+"):
        with open_on_rank0(path, mode) as file:
            found += [file.write(mode), file.tell(), file.seek(0), file.read(), file.tell()]
            file.write("!\n")
            file.seek(1)
            found += [[*file], file.name == path, file.mode, file.closed]
        found += [file.closed, path.read_text()]
    return found


def written() -> Any:
    """Files of all kinds hold what one process writes, and are complete for every rank behind the block."""
    found = []
    with open_on_rank0(FOLDER / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2], [3, 4]])
        found.append(file.tell())
    with open_by_on_rank0(gzip.open, FOLDER / "rows.gz", "wt") as file:
        json.dump({"a": 1}, file)
    with open_path_on_rank0((FOLDER / "rows.bin").open, "xb") as file:
        save_on_rank0(torch.arange(3), file)
    with open_on_rank0(file=FOLDER / "text", mode="w", encoding="utf-16") as file:
        print("ä", file=file)
        file.writelines(["b", "c"])
    found += [(FOLDER / "rows.csv").read_text(), gzip.decompress((FOLDER / "rows.gz").read_bytes()).decode()]
    found += [torch.load(FOLDER / "rows.bin").tolist(), (FOLDER / "text").read_text(encoding="utf-16")]
    found += [error_of(lambda: open_path_on_rank0((FOLDER / "rows.bin").open, "x"))]
    found += [open_on_rank0(FOLDER / "rows.csv").read(), type(open_on_rank0(os.devnull)).__name__]
    return found


class SlowArchive(zipfile.ZipFile):
    """Complete a while after the other ranks would have gone on."""

    def close(self) -> None:
        time.sleep(0.3 * (self.fp is not None))
        super().close()


def archived() -> Any:
    """An archive that rank 0 writes is complete for every rank that reads it next, in a block and closed by hand."""
    with open_by_on_rank0(SlowArchive, FOLDER / "a.zip", "w") as archive:
        archive.writestr("a", "1")
    found: list[Any] = [zipfile.ZipFile(FOLDER / "a.zip").namelist()]
    archive = open_by_on_rank0(SlowArchive, FOLDER / "b.zip", mode="w")
    archive.writestr("b", "1")
    archive.comment = b"seen"
    archive.close()
    found += [
        zipfile.ZipFile(FOLDER / "b.zip").namelist(),
        zipfile.ZipFile(FOLDER / "b.zip").comment.decode(),
    ]
    return [*found, error_of(archive.close), error_of(fails_in_archive)]


def fails_in_archive() -> None:
    with open_by_on_rank0(SlowArchive, FOLDER / "c.zip", "w"):
        raise ValueError


def left_to_python() -> Any:
    """What nobody closes, ranks read as one process does: left behind a statement, and flushed while it stays open."""
    path, found = FOLDER / "left.json", []
    for number in range(3):
        json.dump(Slow(number), open_on_rank0(path, "w"), default=Slow.late)
        found.append(json.loads(path.read_text()))
    log = open_on_rank0("log.csv", "w")
    for number in range(3):
        print(Slow(number).late(), file=log, flush=True)
        with open("log.csv") as file:
            found.append([*file])
    worker = multiprocessing.get_context("fork").Process(target=log.flush)
    worker.start()
    worker.join()
    store = dist.distributed_c10d._get_default_store()
    return [*found, ask_rank0(store.add, os.path.abspath("log.csv"), 0)]


class Slow:
    """What rank 0 takes a while to write."""

    def __init__(self, number: int) -> None:
        self.number = number

    def late(self) -> int:
        time.sleep(0.2 * (own_rank() == 0))
        return self.number


def called_by_name() -> Any:
    """By the name of a method: what is given a path, rank 0 writes; what is not, each rank has."""
    path = FOLDER / "a.txt"
    found = [write_on_rank0(path.write_text, "abc"), path.read_text(), write_on_rank0("a{}".format, 3)]
    buffer = io.StringIO()
    write_on_rank0(Table().to_csv, buffer, sep=";")
    write_on_rank0(Table().to_csv, str(FOLDER / "b.txt"))
    found += [buffer.getvalue(), (FOLDER / "b.txt").read_text(), write_on_rank0(Table().to_csv)]
    found += [
        str(write_on_rank0(path.rename, FOLDER / "c.txt")),
        error_of(lambda: write_on_rank0(path.unlink)),
    ]
    return found


class Table:
    def to_csv(self, place: Any = None, sep: str = ",") -> str | None:
        text = f"1{sep}2"
        if isinstance(place, str):
            with open(place, "x") as file:  # a second rank would find it
                file.write(text)
        elif place is not None:
            place.write(text)
        return text if place is None else None


class Writer:
    """As a SummaryWriter."""

    def __init__(self, folder: str) -> None:
        self.log_dir, self.step = folder, 3
        self._seen: list[Any] = []
        (FOLDER / folder).mkdir()

    def add(self, *values: Any) -> list[Any]:
        self._seen.append(values)
        return self._seen

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def trackers() -> Any:
    writer = make_on_rank0(Writer, "runs")
    with writer as entered:
        entered.add("loss", 1.0)
    writer.step = 3
    logger = logging.Logger("small")
    logger.addHandler(make_handler_on_rank0(logging.FileHandler, FOLDER / "run.log", mode="x"))
    logger.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    logger.warning("said %d", 1)
    exchange_numbers([1])
    library = library_on_rank0(Library)

    step = library.trace(name="step")(own_rank)
    found = [writer.log_dir, writer.step, bool(writer), writer is not None, writer != None]  # noqa: E711
    library.watch(torch.nn.Linear(1, 1))
    found += [(FOLDER / "run.log").read_text(), step is own_rank]
    return found


class Library:
    """As wandb."""

    @staticmethod
    def trace(name: str) -> Callable[[Any], Any]:
        return lambda function: function

    @staticmethod
    def watch(model: Any) -> None:
        pass

    lr = 0.1


def reads_of_rank0s() -> Any:
    """What is read of what rank 0 alone has ends the run on the others: nothing is made up."""
    library, writer = library_on_rank0(Library), make_on_rank0(Writer, "other runs")
    reads = [
        lambda: float(library.lr),
        lambda: f"{library.lr}",
        lambda: library.lr == 0.1,
        lambda: library.lr < 1,
        lambda: bool(library.lr),
        lambda: 1 + library.lr,
        lambda: len(writer.add(1)),
        lambda: [*writer.add(1)],
        lambda: os.path.join("a", library.name) if own_rank() else _raise(RuntimeError),
    ]
    return [error_of(read).split()[0] for read in reads]


def _raise(kind: type[Exception]) -> None:
    raise kind


def errors_and_answers() -> Any:
    """What rank 0 raises or answers comes to all; what cannot be sent is said on all."""
    made: list[int] = []
    rank0_first(made.append, own_rank())
    with TemporaryFolderOnRank0() as folder:
        names = tell_all(folder) == folder and os.path.isdir(folder)
    return [
        ask_rank0(lambda: own_rank()),
        error_of(lambda: run_on_rank0(os.remove, FOLDER / "nothing")),
        error_of(lambda: ask_rank0(lambda: threading.Lock())),
        error_of(lambda: ask_rank0(lambda: _raise(Unpicklable))),
        made == [own_rank()],
        names and not os.path.exists(folder),
        ask_rank0(lambda: ask_rank0(lambda: 3)),
    ]


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("no")


def streams_are_rank0s() -> Any:
    return [torch.rand(2).tolist(), random.random()]


def thread_draws_meanwhile() -> Any:
    torch.manual_seed(3)
    drawn, is_over = [0], threading.Event()

    def draw() -> None:
        while not is_over.is_set():
            torch.rand(1)
            drawn[0] += 1

    thread = threading.Thread(target=draw)
    if own_rank() == 0:
        thread.start()
    for _ in range(100):
        ask_rank0(int)
    is_over.set()
    if own_rank() == 0:
        thread.join()
    count = ask_rank0(lambda: drawn[0])
    apart = torch.Generator().manual_seed(3)
    for _ in range(count):
        torch.rand(1, generator=apart)
    return torch.equal(torch.rand(1), torch.rand(1, generator=apart))


def own_files_are_refused() -> Any:
    """A library writes, of which no helper knows: told on every rank but rank 0, with the line."""
    refuse_own_files()
    found: list[str] = []
    writes: list[Callable[[], Any]] = [
        lambda: (FOLDER / "own.txt").open("a").close(),
        lambda: os.close(os.open(FOLDER / "own.txt", os.O_RDWR | os.O_CREAT)),
        lambda: torch.save({}, FOLDER / "own.pt"),
    ]
    for write in writes:
        try:
            write()
            found.append("")
        except PermissionError as error:
            found.append(str(error))
    os.makedirs(FOLDER / ".cache", exist_ok=True)
    for allowed in (os.devnull, FOLDER / ".cache" / f"{own_rank()}", "/tmp/dp2ddp_guard_test"):
        with open(allowed, "w"):
            pass
    rank0_first(lambda: own_rank() or (FOLDER / "first.txt").write_text("x"))
    torch.save({}, io.BytesIO())
    read = (FOLDER / "first.txt").read_text()
    return [found if own_rank() else [], read]


def unclosed() -> Any:
    """Nobody closes it; its rows are there when the run has ended."""
    vars(torch)["a file that stays"] = file = open_on_rank0(FOLDER / "unclosed.txt", "w")
    file.write("all of it")
    return None


CHECKS = (
    streams_are_rank0s, thread_draws_meanwhile, a_full_disk, read_and_written, written, called_by_name,
    archived, left_to_python, trackers, reads_of_rank0s, errors_and_answers, own_files_are_refused,
    unclosed,
)  # fmt: skip


def main() -> None:
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    random.seed(int(os.environ.get("RANK", 0)))
    early = library_on_rank0(Library)
    init_distributed()
    os.chdir(FOLDER)
    found = {check.__name__: check() for check in CHECKS}
    group: Any = dist.group.WORLD
    found["timeout"] = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    found["a_library_before_ranks_join"] = [early is Library, library_on_rank0(None) is None]
    file = os.open(FOLDER / f".{own_rank()}.json", os.O_CREAT | os.O_WRONLY)
    os.write(file, json.dumps(found).encode())
    rank = own_rank()
    end_distributed()
    assert own_rank() == rank  # what is flushed at exit is still rank 0's alone


if __name__ == "__main__":
    main()
