"""What a test leaves as it found it (environment, process group, child processes); markers, --update."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from dp2ddp.runtime.process.server import Server

ROOT = Path(__file__).resolve().parent.parent

# scripts as researchers name theirs (test.py, test_model.py): data of tests, no tests
collect_ignore_glob = [
    "corpus/*/*",
    "programs/*",
    "pairs/*/*",
    "folders/*",
    "codemod/conversions/*",
    "codemod/idiomatic/conversions/*",
]

# pytest and its plugins write these themselves
OF_PYTEST = {"PYTEST_CURRENT_TEST", "PYTEST_VERSION", "COLUMNS", "LINES"}
# torch's compiler writes it where it is first needed, which may be in any test
OF_TORCH = {"TORCHINDUCTOR_CACHE_DIR"}
OF_SKLEARN = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # joblib and scipy may bring it in
# multiprocessing's own helper lives as long as the process that first needed it
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite golden files instead of comparing with them"
    )
    parser.addoption("--all", action="store_true", help="also what is marked slow: every run of the corpus")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from shared_runs import SharedRuns  # only where xdist is

    return SharedRuns(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_quick(items)
    if not is_all_wanted(config):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
    needing = [item for item in items if item.get_closest_marker("gpu")]
    present = cuda_devices() if needing else 0
    for item in needing:
        skip_without_devices(item, present)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # what takes seconds first: at the end nobody waits for the others
        items.sort(key=lambda item: not starts_ranks(item))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays: each search for garbage walked over all of it."""
    gc.collect()
    gc.freeze()


# where most tests read, write and compare in this process
QUICK = ("codemod", "comparison", "report", "review", "source", "test_docs.py", "test_words.py")


def mark_quick(items: list[pytest.Item]) -> None:
    """`-m quick`: there, of each test that starts no ranks the first case."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        takes_long = starts_ranks(item) or item.get_closest_marker("gpu") or item.get_closest_marker("slow")
        test = (item.path, item.nodeid.partition("[")[0])
        if item.path.relative_to(ROOT / "tests").parts[0] in QUICK and not takes_long and test not in seen:
            seen.add(test)
            item.add_marker(pytest.mark.quick)


def starts_ranks(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("torchrun")) or "server" in getattr(item, "fixturenames", ())


def is_all_wanted(config: pytest.Config) -> bool:
    """`--all`, or tests are named one by one."""
    named = bool(config.option.keyword) or any("::" in argument for argument in config.args)
    return named or bool(config.getoption("--all"))


def skip_without_devices(item: pytest.Item, present: int) -> None:
    marker = item.get_closest_marker("gpu")
    wanted: int = marker.kwargs.get("devices", 1) if marker else 1
    if present < wanted:
        reason = f"needs {wanted} CUDA device{'s' * (wanted > 1)}, {present or 'none'} here"
        item.add_marker(pytest.mark.skip(reason=reason))


def cuda_devices() -> int:
    import torch  # only where a gpu test was collected: a second, and this file serves the fast tests too

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@pytest.fixture(scope="session")
def wants_all(request: pytest.FixtureRequest) -> bool:
    """True when tests that are marked slow run, too; for a fixture that prepares for many tests at once."""
    return is_all_wanted(request.config)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One process that has torch imported; runs of tests are forked from it (runtime/process/forked.py)."""
    from dp2ddp.runtime.process.server import Server
    from dp2ddp.trial.runs import environment

    with Server(environment()) as server:
        yield server


@pytest.fixture(scope="module")
def worlds(request: pytest.FixtureRequest) -> list[int]:
    """On how many ranks the tests of this file that will run want something done (their parameter `world`)."""
    tests = [item for item in request.session.items if item.path == request.path]
    parameters = [item.callspec.params for item in tests if hasattr(item, "callspec")]
    return sorted({each["world"] for each in parameters if "world" in each})


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be rewritten (`pytest --update`); the diff is the review."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`tmp_path`, and the current folder, where a test begins; for a file: pytest.mark.usefixtures."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def environment_is_left_as_it_was() -> Iterator[None]:
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update((name, before[name]) for name in changed & before.keys())
    changed -= OF_PYTEST | OF_TORCH | OF_SKLEARN
    assert not changed, f"the test left these variables changed: {sorted(changed)}"


@pytest.fixture(autouse=True)
def process_group_is_left_closed() -> Iterator[None]:
    yield
    distributed = sys.modules.get("torch.distributed")  # not imported: then nothing can be open
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        pytest.fail("the test left a process group open")


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    before = children() | children()  # Linux may pass over one while its neighbour ends
    yield
    _, alive = psutil.wait_procs(children() - before, timeout=3)
    for process in alive:
        process.kill()
    assert not alive, f"the test left processes behind: {[describe(process) for process in alive]}"


def children() -> set[psutil.Process]:
    """All below this process, as Linux lists them: psutil would read all of /proc, before and after each test."""
    found = set()
    for pid in below(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid))
    return {process for process in found if not is_helper(process)}


def below(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            for child in map(int, file.read_text().split()):
                yield child
                yield from below(child)


def is_helper(process: psutil.Process) -> bool:
    return any(name in describe(process) for name in HELPERS)


def describe(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""
