"""Batches that rank 0 makes for all ranks: what one process would give, on every rank, whatever it is."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates import process, shared
from dp2ddp.templates.shared import accept_ranks, connect_to_rank, listen_for_ranks
from ranks import FORKED, TORCHRUN, end_all
from torch.utils.data import DataLoader

pytestmark = pytest.mark.torchrun
HERE = Path(__file__).parent
Found = Callable[[int, str], list[Any]]
# four ranks do with `--all` what two do; always what needs four (shared_program.NEED_FOUR)
WORLDS = (2, pytest.param(4, marks=pytest.mark.slow))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, wants_all: bool) -> Found:
    """What a check found, one entry a rank; two ranks do all checks in one go, and then four."""
    folder = tmp_path_factory.mktemp("shared")
    command = [sys.executable, str(HERE / "shared_program.py"), str(folder), *["--all"] * wants_all]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stderr
    results = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return lambda world, name: [results[f"{world}_{rank}"][name] for rank in range(world)]


SAME = (
    *("without_workers", "without_workers_mapped", "two_workers_mapped", "persistent_workers"),
    *("iterable_with_workers", "iterable_without_workers", "one_at_a_time"),
    *("begins_while_it_is_made", "by_names_in_the_file_system", "pinned"),
)


@pytest.mark.skipif("in_order" not in inspect.signature(DataLoader).parameters, reason="torch before 2.6")
@pytest.mark.parametrize("world", WORLDS)
def test_batches_that_come_as_they_are_made_are_the_same_on_all_ranks(found: Found, world: int) -> None:
    assert found(world, "out_of_order") == [[True, 1]] * world


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", SAME)
def test_batches_draws_and_what_samples_leave_are_those_of_one_process(
    found: Found, world: int, check: str
) -> None:
    assert found(world, check) == [[True, 1]] * world


@pytest.mark.slow  # each start of such a worker imports torch; test_plain.py spawns one
@pytest.mark.parametrize("check", ["spawned", "forkserver"])
def test_workers_may_be_started_in_any_way(found: Found, check: str) -> None:
    assert found(2, check) == [[True, 1]] * 2


def test_the_first_rank_of_another_node_hands_on_what_came_over_the_network(found: Found) -> None:
    for *same, sockets in found(4, "two_nodes"):
        assert same == [True, 1] * 4
        assert sockets == [[1], [0], [3], [2]]


@pytest.mark.parametrize("world", WORLDS)
def test_a_batch_of_anything_is_the_same_on_every_rank(found: Found, world: int) -> None:
    assert found(world, "strange_batches") == [[[], []]] * world


def test_large_tensors_of_workers_are_handed_on_and_labels_travel_inside(found: Found) -> None:
    inside, own, copied = [0, False], [1, True], [1, False]
    passes = [[inside, batches, batches, inside] for batches in (own, inside, copied, inside)]
    assert found(2, "how_it_goes") == [sum(passes, [])] * 2


def packed_batch(value: float) -> tuple[shared.Packed, int]:
    """A batch of 400 KB as rank 0 hands it on, and which file it lies in."""
    packed = shared.pack_batch([torch.full((100_000,), value), torch.tensor(value)], by_workers=False)
    return packed, os.fstat(packed.files[0]).st_ino


def test_a_file_is_written_to_again_only_when_nobody_has_its_batch() -> None:
    """In a message that nobody has read, as a mapping, as a view of it, and in a child that has it from its parent."""
    if not shared.leases_tell():
        pytest.skip("this system does not tell who has a file")
    shared.forget_written_files()
    found: list[int] = []
    try:
        packed, file = packed_batch(1.0)
        found.append(file)
        found.append(packed_batch(2.0)[1])
        (x, _), row = shared.unpack_batch(packed), None
        packed.close()
        found.append(packed_batch(3.0)[1])
        row = x[5:7]
        del x
        found.append(packed_batch(4.0)[1])
        assert len({*found}) == 4
        assert row.tolist() == [1.0, 1.0]
        child = os.fork()
        if child == 0:
            signal.pause()
        del row
        assert len({*found, packed_batch(5.0)[1]}) == 5
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    finally:
        shared.forget_written_files()


def test_a_file_whose_batch_is_gone_is_written_to_again() -> None:
    if not shared.leases_tell():
        pytest.skip("this system does not tell who has a file")
    shared.forget_written_files()
    files, before = set(), torch.zeros(1)
    for number in range(1, 20):
        packed, file = packed_batch(float(number))
        files.add(file)
        x, one = shared.unpack_batch(packed)
        packed.close()
        assert float(before.sum()) == max(number - 1, 0) * len(before)  # the batch before is as it was
        assert x.eq(number).all()
        assert one == number
        x[0] = -1.0  # this process's own, and not in the file
        before = x[1:]
    assert len(files) == 2
    shared.forget_written_files()


def test_rows_of_a_table_go_without_the_table(found: Found) -> None:
    for is_first, sizes in found(4, "rows_leave_their_table"):
        assert sizes == [8_000_000 if is_first else 8000] * 3


@pytest.mark.parametrize("world", WORLDS)
def test_what_a_rank_writes_into_a_batch_no_other_sees(found: Found, world: int) -> None:
    assert found(world, "writes_stay") == [[True] * 4] * world


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_batches_leave_no_descriptor_and_no_memory(found: Found, world: int) -> None:
    assert found(world, "memory_goes") == [[True, True, 40, 40]] * world


def test_errors_are_the_same_on_every_rank(found: Found) -> None:
    *facts, refused = [
        [2, "ParserError", "line 7: broken"],
        [2, "ParserError", "line Caught ParserError in DataLoader worker process 0."],
        [0, "RuntimeError", "DataLoader worker"],
        [0, "ZeroDivisionError", "nothing"],
        [0, "KeyError", "'no order'"],
        [
            0,
            "ValueError",
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
        ],
        [0, "TypeError", "rank 0 cannot hand this batch on"],
    ]
    for (*told, last), different in found(4, "errors"):
        assert (told, last[:2], last[2].partition(":")[0]) == (facts, refused[:2], refused[2])
        assert different == 1


def test_it_answers_as_the_loader_and_only_rank_0_looks_at_indices(found: Found) -> None:
    for meta, mixed, asked, first, elsewhere, copied, alike in found(4, "like_the_loader"):
        assert meta == [4, 4, "DataLoader", True, True]
        assert (mixed, first) == ([0.0, 0.0, 3.0, 3.0, 6.0], [0.0, 1.0, 2.0])
        assert asked == [True, False, False, False]
        assert (elsewhere, copied) == ([10, 10, 10], [2, 2])
        assert alike == [1, True]


SCRIPT = """
import os, resource, signal, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from dp2ddp.templates.process import exchange, join_process_group, own_rank
from dp2ddp.templates.shared import share

join_process_group()
if sys.argv[1] == "few":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
workers = int(sys.argv[2])
kept, total = [], 0.0

def tell(*ignored):
    open(f"{__file__}.{os.getpid()}", "w").close()

tell()
data = TensorDataset(torch.ones(400, 9000))
loader = share(DataLoader, data, batch_size=2, num_workers=workers, worker_init_fn=tell)
for number, (x,) in enumerate(loader):
    total += float(x.sum())
    if workers == 0:
        kept.append(x)
    if number == 3 and sys.argv[1] == str(own_rank()):
        os.kill(os.getpid(), signal.SIGKILL)
print(exchange(total))
"""


def run(launcher: Sequence[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [*launcher, "2", str(script), *arguments], capture_output=True, text=True, timeout=300
    )
    assert end_all(script) == 0
    processes = [path.name.rpartition(".")[2] for path in folder.glob("train.py.*")]  # ranks and workers
    assert len(processes) == 2 + int(arguments[1])  # rank 0 alone has workers
    assert not [path for one in processes for path in Path("/dev/shm").glob(f"torch_{one}_*")]
    return ended


@pytest.mark.parametrize(
    ("victim", "workers"),
    [
        ("0", "2"),
        pytest.param("1", "0", marks=pytest.mark.slow),
        pytest.param("0", "0", marks=pytest.mark.slow),
        pytest.param("1", "2", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_killed_ends_the_run_and_leaves_nothing(
    tmp_path: Path, victim: str, workers: str
) -> None:
    ended = run(TORCHRUN, tmp_path, victim, workers)
    assert ended.returncode == 1
    assert f"exitcode  : -{int(signal.SIGKILL)}" in ended.stderr


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "2"])
def test_few_open_files_are_enough_also_for_batches_that_are_kept(tmp_path: Path, workers: str) -> None:
    ended = run(FORKED, tmp_path, "few", workers)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == str([400 * 9000.0] * 2)


LARGE = """
import os, resource, sys
import torch
from torch.utils.data import DataLoader, Dataset
from dp2ddp.templates.process import exchange, join_process_group, own_rank
from dp2ddp.templates.shared import share

join_process_group()

class Rows(Dataset):
    def __len__(self):
        return int(sys.argv[1])

    def __getitem__(self, index):
        return torch.full((int(sys.argv[2]),), float(index))

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = 0.0
for number, x in enumerate(share(DataLoader, Rows(), batch_size=3, shuffle=True, num_workers=int(sys.argv[3]))):
    total += float(x.double().sum())
    if number == 3:
        break
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
told = exchange((grown, total))
if own_rank() == 0:
    print([one for one, _ in told], len({one for _, one in told}))
"""


def test_a_list_of_indices_is_in_rank_0s_memory_alone(tmp_path: Path) -> None:
    """Of 3 million here (a permutation of 100 million: 4592 MB on rank 0, 0 MB on the others, for W = 2 and 4)."""
    (tmp_path / "train.py").write_text(LARGE)
    command = [*FORKED, "3", str(tmp_path / "train.py"), "3000000", "10", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    (first, *others), alike = ast.literal_eval(ended.stdout.strip().replace("] ", "], "))
    assert first > 100
    assert max(others) < 20
    assert alike == 1


@pytest.mark.parametrize(
    ("size", "workers"),
    [
        ("64M", "2"),
        ("1M", "1"),
        pytest.param("1M", "0", marks=pytest.mark.slow),
    ],
)
def test_little_shared_memory_is_enough_where_it_is_for_one_process(
    tmp_path: Path, size: str, workers: str
) -> None:
    """As in a container, by a mount of its own. Of 1 MB torch says itself that a batch of workers does not fit."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("mounts of one's own are not permitted here")
    script = tmp_path / "train.py"
    script.write_text(LARGE)
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm && exec {shlex.join([*FORKED, '2', str(script)])}"
    command = ["unshare", "-m", "bash", "-c", f"{mount} 15 1000000 {workers}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert end_all(script) == 0
    if (size, workers) == ("1M", "1"):
        for rank in (0, 1):
            # torch before 2.6 lets the worker end: a bus error
            torchs_own = (
                r"RuntimeError: (unable to allocate shared mem|DataLoader worker \(.*\) exited unexpectedly)"
            )
            assert re.search(rf"^\[rank{rank}\]: {torchs_own}", ended.stderr, re.MULTILINE), ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.strip().endswith("] 1")


def test_a_caller_that_breaks_off_or_does_not_know_the_word_ends_nothing() -> None:
    """Any process on the machine can read the socket's name in /proc/net/unix."""
    door = listen_for_ranks()
    first, second = (socket.socket(socket.AF_UNIX) for _ in range(2))
    first.connect(door[1])
    first.close()
    second.connect(door[1])
    second.sendall(b"x" * 40)
    rank = connect_to_rank(door[1:], 1)

    ((number, accepted),) = accept_ranks(door, 1)

    rank.sendall(b"batch")
    assert (number, accepted.recv(9)) == (1, b"batch")
    assert second.recv(1) == b""
    for one in (second, rank, accepted, door[0]):
        one.close()


def test_a_caller_that_says_nothing_is_waited_for_a_little_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "CALLER_TIMEOUT", 0.2)
    door = listen_for_ranks()
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(door[1])
    rank = connect_to_rank(door[1:], 3)

    ((number, accepted),) = accept_ranks(door, 1)

    assert number == 3
    assert accepted.gettimeout() == process.TIMEOUT.total_seconds()
    for one in (silent, rank, accepted, door[0]):
        one.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_not_let_in_even_with_the_word() -> None:
    door = listen_for_ranks()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            connect_to_rank(door[1:], 1).recv(1)  # until it is closed
        finally:
            os._exit(0)
    # the child may come before or after it
    rank = connect_to_rank(door[1:], 2)
    accepted = accept_ranks(door, 1)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        with contextlib.suppress(TimeoutError):
            door[0].settimeout(0.1)
            accepted += accept_ranks(door, 1)

    assert [number for number, _ in accepted] == [2]
    for one in (rank, accepted[0][1], door[0]):
        one.close()
