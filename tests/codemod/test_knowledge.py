"""The table of what functions do, against the libraries themselves: each row of one that is installed.

A name is there; the argument that decides stands where the row says; and what the row says a call does, a call does.
"""

from __future__ import annotations

import contextlib
import http.server
import importlib
import importlib.util
import inspect
import io
import logging
import operator
import os
import pickle
import random
import shelve
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp2ddp.templates import held

from dp2ddp.codemod.knowledge.functions import ROWS, TRACKING, Does, FunctionRow
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.knowledge.names import SPELLINGS

GONE = {  # from newer versions; old scripts still say so
    "time.clock": "Python 3.8 took it out",
    "urllib.urlretrieve": "of Python 2",
    "distutils.dir_util.mkpath": "Python 3.12 took it out",
    "torchvision.io.write_video": "a newer torchvision took it out",
    "tifffile.imsave": "a newer tifffile took it out",
    "scipy.misc.imsave": "scipy 1.2 took it out",
    "sklearn.externals.joblib.dump": "scikit-learn 0.23 took it out",
    "numpy.random.random_integers": "a newer numpy took it out",
    "dbm.gnu.open": "as Python was built",
    "dbm.ndbm.open": "as Python was built",
    "torch.nn.parallel.scatter_kwargs": "no name of torch's: ours for scatter_gather.scatter_kwargs",
}
NO_SIGNATURE = {
    *("sqlite3.connect", "torch.device", "torch.from_file", "lmdb.open", "netCDF4.Dataset"),
    *("time.strftime", "time.ctime", "time.asctime", "time.localtime", "time.gmtime"),
}
# They take seconds to import, and set environment variables: asked in a process of their own.
ELSEWHERE = ("lightning", "pytorch_lightning")


class NotHere(Exception):
    """A library is not installed, or its version has no such thing."""


def resolved(name: str) -> Any:
    """The thing that a dotted name is; skips where its library is not installed."""
    try:
        return found(name)
    except NotHere as why:
        pytest.skip(str(why))


def found(name: str) -> Any:
    """The thing that a dotted name is; NotHere where its library is not installed."""
    library = name.partition(".")[0]
    try:
        is_there = library in sys.modules or importlib.util.find_spec(library) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        raise NotHere(f"{library} is not installed")
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(ImportError):
            thing: Any = importlib.import_module(".".join(parts[:count]))
            if name in GONE and not _has(thing, parts[count:]):
                raise NotHere(GONE[name])
            return operator.attrgetter(".".join(parts[count:]))(thing)
    raise AttributeError(name)


def _has(thing: Any, parts: list[str]) -> bool:
    for part in parts:
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


def rows(*kinds: Does) -> list[Any]:
    return [
        pytest.param(name, row, id=name) for name, row in ROWS.items() if row.does in (kinds or tuple(Does))
    ]


# --- names and places


def test_a_name_is_there_and_its_argument_stands_where_the_row_says() -> None:
    wrong = {name: why for name, row in ROWS.items() if (why := misplaced(name, row))}
    assert wrong == {}


def misplaced(name: str, row: FunctionRow) -> str:
    """What the library has in the place of what the row says; nothing where it is not installed."""
    if name.startswith(ELSEWHERE):
        return ""
    try:
        function = found(name)
    except NotHere:
        return ""
    if row.position is None and row.keyword is None or name in NO_SIGNATURE:
        return "" if callable(function) else "no function"
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    if row.keyword is not None and not takes_all:
        if row.keyword not in parameters:
            return f"no {row.keyword}"
        if row.usual and str(parameters[row.keyword].default) != row.usual:
            return f"{row.keyword} is {parameters[row.keyword].default}"
    if row.position is None:
        return ""
    at = list(parameters)[row.position]
    return "" if row.keyword in (None, at) else f"{at} at {row.position}"


@pytest.mark.slow
def test_names_of_lightning_are_there() -> None:
    names = [
        name
        for name in ROWS
        if name.startswith(ELSEWHERE) and importlib.util.find_spec(name.partition(".")[0])
    ]
    modules = sorted({name.rpartition(".")[0] for name in names})
    code = f"import {', '.join(modules)}; [{', '.join(names)}]" if names else ""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_spellings_are_of_one_thing(spelling: str, name: str) -> None:
    one, other = resolved(spelling), resolved(name)
    if one.__module__ == "torch_geometric.deprecation":  # a class that warns, derived from the other
        one = one.__mro__[1]
    assert (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    assert canonical_is_final(name)


def canonical_is_final(name: str) -> bool:
    return name not in SPELLINGS


KNOWN_TO_WRITE_NONE = {  # of torch's own functions, by their looks
    *("torch.jit.export", "torch.jit.export_opnames", "torch.compiler.save_cache_artifacts"),
    *("torch.cuda.export_dot", "torch.cuda.export_graph_data"),  # texts
    *(
        "torch.utils.tensorboard.writer.write_pbtxt",
        "torch.jit.save_jit_module_to_flatbuffer",
    ),  # not for scripts
}


def test_what_looks_like_a_writer_of_torchs_is_in_the_table() -> None:
    """By its looks nothing of torch's is taken for one: so the table must have them all."""
    found = set()
    for home in (
        "torch",
        "torch.jit",
        "torch.onnx",
        "torch.export",
        "torch.hub",
        "torch.package",
        "torch.cuda",
    ):
        for word, thing in vars(importlib.import_module(home)).items():
            is_own = not word.startswith("_") and (getattr(thing, "__module__", None) or "").startswith(
                "torch"
            )
            if is_own and method(word) in (MethodDoes.WRITE, MethodDoes.MAY_WRITE):
                found.add(SPELLINGS.get(f"{home}.{word}", f"{home}.{word}"))
    assert found - set(ROWS) <= KNOWN_TO_WRITE_NONE


# --- what writes


def picture(folder: Path) -> dict[str, tuple[object, ...]]:
    """What lies in a folder: names, contents, times and rights."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_ctime_ns, content)
    return found


Folder = Path
KEPT: list[Any] = []  # what would be gone with the last name for it
ARRAY = np.arange(3.0)
IMAGE, FRAME = np.zeros((8, 8, 3), np.uint8), np.zeros((64, 64, 3), np.uint8)
TENSORS = {"a": torch.ones(2)}


def _scripted() -> torch.jit.ScriptModule:
    return torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))  # type: ignore[no-any-return, no-untyped-call]


def _exported() -> Any:
    return torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))


LOG_SETTINGS = """
[loggers]
keys=root
[handlers]
keys=f
[formatters]
keys=
[logger_root]
handlers=f
[handler_f]
class=FileHandler
args=('{log}',)
"""
LOG_FILE = {"class": "logging.FileHandler", "filename": "x"}
LOG_DICT = {"version": 1, "handlers": {"f": LOG_FILE}, "root": {"handlers": ["f"]}}
# In a folder that has a file `a` (with some text), a folder `d` and an empty folder `e`.


def in_new_file(folder: Path, work: Callable[[int], object]) -> None:
    with (folder / "x").open("wb") as file:
        work(file.fileno())


WRITING: dict[str, Callable[[Any, Folder], object]] = {
    "os.makedirs": lambda f, p: f(p / "x" / "y"),
    "os.mkdir": lambda f, p: f(p / "x"),
    "os.remove": lambda f, p: f(p / "a"),
    "os.unlink": lambda f, p: f(p / "a"),
    "os.rmdir": lambda f, p: f(p / "e"),
    "os.removedirs": lambda f, p: f(p / "e"),
    "os.write": lambda f, p: f(os.open(p / "a", os.O_WRONLY), b"other"),
    "os.truncate": lambda f, p: f(p / "a", 1),
    **{f"os.{name}": lambda f, p: in_new_file(p, f) for name in ("fsync", "fdatasync")},
    "os.ftruncate": lambda f, p: in_new_file(p, lambda number: f(number, 9)),
    "os.chmod": lambda f, p: f(p / "a", 0o600),
    "os.chown": lambda f, p: f(p / "a", os.getuid(), os.getgid()),
    "os.utime": lambda f, p: f(p / "a", (1, 1)),
    "os.mkfifo": lambda f, p: f(p / "x"),
    "os.mknod": lambda f, p: f(p / "x"),
    **{f"os.{name}": lambda f, p: f(p / "a", p / "x") for name in ["rename", "renames", "replace", "symlink", "link"]},
    "shutil.rmtree": lambda f, p: f(p / "d"),
    "shutil.copytree": lambda f, p: f(p / "d", p / "x"),
    "shutil.copymode": lambda f, p: f(p / "d", p / "a"),
    "shutil.copystat": lambda f, p: f(p / "d", p / "a"),
    "shutil.make_archive": lambda f, p: f(str(p / "x"), "tar", p / "d"),
    "shutil.unpack_archive": lambda f, p: f(shutil.make_archive(str(p.parent / "made"), "tar", p / "d"), p / "e"),
    "shutil.chown": lambda f, p: f(p / "a", os.getuid()),
    **{f"shutil.{name}": lambda f, p: f(p / "a", p / "x") for name in ["copy", "copy2", "copyfile", "move"]},
    **{f"numpy.{name}": lambda f, p: f(p / "x", ARRAY) for name in ["save", "savez", "savez_compressed", "savetxt"]},
    "torch.jit.save": lambda f, p: f(_scripted(), p / "x"),
    "torch.export.save": lambda f, p: f(_exported(), p / "x"),
    "torch.distributed.checkpoint.save": lambda f, p: f(TENSORS, checkpoint_id=p / "x"),
    "torch.save": lambda f, p: f(TENSORS, p / "x"),
    "safetensors.torch.save_file": lambda f, p: f(TENSORS, p / "x"),
    "safetensors.torch.save_model": lambda f, p: f(torch.nn.Linear(2, 2), str(p / "x")),
    "safetensors.numpy.save_file": lambda f, p: f({"a": ARRAY}, p / "x"),
    "logging.config.dictConfig": lambda f, p: f(LOG_DICT),
    "logging.config.fileConfig": lambda f, p: f(io.StringIO(LOG_SETTINGS.format(log=p / "x"))),
    "logging.basicConfig": lambda f, p: f(filename=p / "x", force=True),
    "pathlib.Path.mkdir": lambda f, p: f(p / "x"),
    "distutils.dir_util.mkpath": lambda f, p: f(str(p / "x")),
    "urllib.request.urlretrieve": lambda f, p: f((p / "a").as_uri(), p / "x"),
    "torch.hub.download_url_to_file": lambda f, p: f((p / "a").as_uri(), str(p / "x"), progress=False),
    "logging.FileHandler": lambda f, p: f(p / "x").close(),
    "logging.handlers.RotatingFileHandler": lambda f, p: f(p / "x").close(),
    "logging.handlers.TimedRotatingFileHandler": lambda f, p: f(p / "x").close(),
    "logging.handlers.WatchedFileHandler": lambda f, p: f(p / "x").close(),
    "torch.utils.tensorboard.SummaryWriter": lambda f, p: f(str(p / "x")).close(),
    "matplotlib.pyplot.savefig": lambda f, p: f(p / "x.png"),
    "matplotlib.pyplot.imsave": lambda f, p: f(p / "x.png", IMAGE),
    **dict.fromkeys(
        ("imageio.imwrite", "imageio.imsave", "imageio.v2.imwrite", "imageio.v3.imwrite", "skimage.io.imsave"),
        lambda f, p: f(p / "x.png", IMAGE),
    ),
    "tifffile.imwrite": lambda f, p: f(p / "x.tif", IMAGE),
    "cv2.imwrite": lambda f, p: f(str(p / "x.png"), IMAGE),
    "cv2.VideoWriter": lambda f, p: f(str(p / "x.avi"), 0x47504A4D, 9.0, (64, 64)).write(FRAME),
    "scipy.io.savemat": lambda f, p: f(p / "x.mat", {"a": ARRAY}),
    "scipy.io.wavfile.write": lambda f, p: f(p / "x.wav", 8000, ARRAY),
    "soundfile.write": lambda f, p: f(p / "x.wav", ARRAY / 9, 8000),
    "joblib.dump": lambda f, p: f(ARRAY, p / "x"),
    "torchvision.utils.save_image": lambda f, p: f(torch.rand(3, 4, 4), p / "x.png"),
    "zarr.save": lambda f, p: f(str(p / "x.zarr"), ARRAY),
    "loguru.logger.add": lambda f, p: f(p / "x.log"),
    "torch.utils.tensorboard.FileWriter": lambda f, p: f(str(p / "x")).close(),
    "torch.package.PackageExporter": lambda f, p: f(p / "x").close(),
    "tempfile.TemporaryDirectory": lambda f, p: KEPT.append(f(dir=p)),
}  # fmt: skip
HELD = {*sys.stdlib_module_names, "numpy", "torch", "safetensors"}  # of which every row is run
NOT_RUN = {
    "torch.onnx.export": "needs onnx",
    "torch.distributed.checkpoint.save_state_dict": "the old name of torch.distributed.checkpoint.save, and warns",
    **dict.fromkeys(("smtplib.SMTP", "smtplib.SMTP_SSL"), "sends mail by a server"),
    "torch.profiler.tensorboard_trace_handler": "makes a function that writes when a profile is ready",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file and two folders, in which the test runs; logging is as before behind it."""
    place = tmp_path / "place"
    for name in ("d", "e"):
        (place / name).mkdir(parents=True)
    (place / "d" / "inner").write_text("inner")
    (place / "a").write_text("some text")
    (place / "keep").write_text("so that the folder is not empty")
    monkeypatch.chdir(place)
    handlers, level = logging.root.handlers[:], logging.root.level
    yield place
    for handler in logging.root.handlers:
        if handler not in handlers:
            handler.close()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    while KEPT:
        KEPT.pop().cleanup()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "row"), rows(Does.WRITE, Does.SAVE, Does.TRACK, Does.HANDLE_LOG, Does.FOLDER)
)
def test_what_writes_does(name: str, row: FunctionRow, folder: Path) -> None:
    if name in NOT_RUN:
        pytest.skip(NOT_RUN[name])
    function = resolved(name)
    if name not in WRITING and name.partition(".")[0] not in HELD:
        pytest.skip("no arguments are written down for it")
    before = picture(folder)
    WRITING[name](function, folder)
    assert picture(folder) != before


def test_logging_without_a_file_writes_none(folder: Path) -> None:
    before = picture(folder)
    logging.basicConfig(level="INFO", force=True)
    assert picture(folder) == before


OPENED: dict[str, Callable[[Any, Path], object]] = {  # how they write what can be read
    "zipfile.ZipFile": lambda f, path: f(path, "w").close(),
    "tarfile.open": lambda f, path: f(path, "w").close(),
    "wave.open": lambda f, path: _wave(f(str(path), "w")),
}


def _wave(writer: Any) -> None:
    writer.setnchannels(1)
    writer.setsampwidth(1)
    writer.setframerate(8000)
    writer.close()


@pytest.mark.parametrize(("name", "row"), rows(Does.OPEN))
def test_what_opens_writes_by_its_mode_alone(name: str, row: FunctionRow, folder: Path) -> None:
    if name == "soundfile.SoundFile":
        pytest.skip("needs a format to write")
    function = resolved(name)
    before = picture(folder)
    write: Callable[[Any, Path], object] = OPENED.get(name, lambda f, path: f(path, "w").close())
    write(function, folder / "x")
    assert picture(folder) != before, "w writes"
    before = picture(folder)
    function(str(folder / "x")).close()  # the usual mode
    function(str(folder / "x"), "r").close()
    assert picture(folder) == before


def _written_memmap(path: Path) -> None:
    np.memmap(path, "float64", "w+", shape=(3,))[:] = 1


def _shelf(path: Path) -> None:
    with shelve.open(str(path)) as shelf:
        shelf["a"] = 1


def _table(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("create table t (a)")
        base.commit()


def _read_table(connect: Any, path: Path) -> None:
    with contextlib.closing(connect(f"file:{path}?mode=ro", uri=True)) as base:
        base.execute("select * from t")


def _table_in_memory(connect: Any, path: Path) -> None:
    with contextlib.closing(connect(":memory:")) as base:
        base.execute("create table t (a)")


def _write_table(connect: Any, path: Path) -> None:
    with contextlib.closing(connect(path)) as base:
        base.execute("insert into t values (1)")
        base.commit()


@dataclass(frozen=True)
class Store:
    """What makes one; what reads it, so that nothing is to be done; what writes it, in the usual way."""

    make: Callable[[Path], object]
    read: tuple[Callable[[Any, Path], object], ...]
    write: Callable[[Any, Path], object]


def _array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, ARRAY)


def _words(path: Path) -> None:
    path.write_text("x")


def _nothing(path: Path) -> None:
    pass


def _shouted(function: Any, path: Path) -> None:
    with function(path, inplace=True) as lines:
        for line in lines:
            print(line.upper(), end="")


LINES = Store(lambda p: p.write_text("a\n"), (lambda f, p: [*f(p)],), _shouted)
STORES = {
    "fileinput.input": LINES,
    "fileinput.FileInput": LINES,
    "numpy.memmap": Store(
        _written_memmap,
        (lambda f, p: f(p, "float64", "r"), lambda f, p: f(p, "float64", "c").__setitem__(0, 9)),
        lambda f, p: f(p, "float64").__setitem__(0, 9),
    ),
    "numpy.lib.format.open_memmap": Store(
        _array,
        (lambda f, p: f(p, "r"), lambda f, p: f(p, "c").__setitem__(0, 9)),
        lambda f, p: f(p).__setitem__(0, 9),
    ),
    "numpy.load": Store(
        _array,
        (lambda f, p: f(p), lambda f, p: f(p, "r"), lambda f, p: f(p, mmap_mode="c").__setitem__(0, 9)),
        lambda f, p: f(p, mmap_mode="r+").__setitem__(0, 9),
    ),
    "torch.from_file": Store(
        lambda p: p.write_bytes(bytes(8)),
        (lambda f, p: f(str(p), size=2).add_(1), lambda f, p: f(str(p), False, 2).add_(1)),
        lambda f, p: f(str(p), shared=True, size=2).add_(1),
    ),
    "shelve.open": Store(
        _shelf, (lambda f, p: f(str(p), "r").close(),), lambda f, p: f(str(p)).__setitem__("b", 1)
    ),
    "dbm.open": Store(
        _shelf,
        (lambda f, p: f(str(p), "r").close(), lambda f, p: f(str(p)).close()),
        lambda f, p: f(str(p), "c").__setitem__("b", "1"),
    ),
    "sqlite3.connect": Store(_table, (_read_table, _table_in_memory), _write_table),
    "os.open": Store(
        _words,
        (lambda f, p: os.close(f(p, os.O_RDONLY)),),
        lambda f, p: os.close(f(p, os.O_WRONLY | os.O_TRUNC)),
    ),
    "tempfile.NamedTemporaryFile": Store(
        _nothing, (lambda f, p: f(dir=p.parent).close(),), lambda f, p: f(dir=p.parent, delete=False).close()
    ),
    "tempfile.mkstemp": Store(_nothing, (), lambda f, p: os.close(f(dir=p.parent)[0])),
    "argparse.FileType": Store(
        _words,
        (lambda f, p: f()(str(p)).close(), lambda f, p: f("r")(str(p)).close()),
        lambda f, p: f("w")(str(p)).close(),
    ),
    "os.popen": Store(
        lambda p: p.touch(),
        (lambda f, p: f("stty size").close(),),
        lambda f, p: f(f"echo 1 > '{p}.new'").close(),
    ),
    "subprocess.Popen": Store(_nothing, (), lambda f, p: f(["touch", str(p)]).wait()),
    "h5py.File": Store(
        lambda p: resolved("h5py.File")(p, "w").close(),
        (lambda f, p: f(p).close(), lambda f, p: f(p, "r").close()),
        lambda f, p: f(p, "a").__setitem__("x", ARRAY),
    ),
    "tables.open_file": Store(
        lambda p: resolved("tables.open_file")(p, "w").close(),
        (lambda f, p: f(p).close(), lambda f, p: f(p, "r").close()),
        lambda f, p: f(p, "w").close(),
    ),
    "netCDF4.Dataset": Store(
        lambda p: resolved("netCDF4.Dataset")(p, "w").close(),
        (lambda f, p: f(p).close(), lambda f, p: f(p, "r").close()),
        lambda f, p: f(p, "w").close(),
    ),
    "pandas.HDFStore": Store(
        lambda p: resolved("pandas.HDFStore")(p, "w").close(),
        (lambda f, p: f(p, "r").close(),),
        lambda f, p: f(p.with_suffix(".new")).close(),
    ),
    "lmdb.open": Store(
        lambda p: resolved("lmdb.open")(str(p)).close(),
        (lambda f, p: f(str(p), readonly=True, lock=False).close(),),
        lambda f, p: f(str(p.with_suffix(".new"))).close(),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), [*rows(Does.KEEP_STORE), *rows(Does.START_PROGRAM)])
def test_a_store_is_written_unless_it_is_opened_to_be_read(name: str, row: FunctionRow, folder: Path) -> None:
    if name.startswith("dbm.") and name != "dbm.open":
        pytest.skip("as dbm.open")
    function = resolved(name)
    if name not in STORES and name.partition(".")[0] not in HELD:
        pytest.skip("no arguments are written down for it")
    if name == "pandas.HDFStore":
        pytest.importorskip("tables")
    store = STORES[name]
    store.make(folder / "store")
    before = picture(folder)
    for read in store.read:
        read(function, folder / "store")
        assert picture(folder) == before
    store.write(function, folder / "store")
    assert picture(folder) != before


INTO_FILE = dict.fromkeys(
    ("marshal.dump", "pickle.dump", "plistlib.dump", "dill.dump", "cloudpickle.dump"), io.BytesIO
)
OTHERWISE = {
    "ast.dump": "gives a text back",
    "torch.export.export": "gives a program back",
    "torch.autograd.graph.save_on_cpu": "keeps tensors in memory",
    "traceback.print_exc": "into stderr or an open file",
    "tqdm.tqdm.write": "into stdout or an open file",
}


@pytest.mark.parametrize(("name", "row"), rows(Does.INTO_FILE))
def test_what_is_given_an_open_file_opens_none(name: str, row: FunctionRow, folder: Path) -> None:
    if name in OTHERWISE:
        pytest.skip(OTHERWISE[name])
    function = resolved(name)
    before = picture(folder)
    file = INTO_FILE.get(name, io.StringIO)()
    function(["1"] if "all" in name else {"a": "1"}, file)
    assert file.getvalue()
    assert picture(folder) == before


# --- what answers


ASKED: dict[str, Callable[[Any], object]] = {
    "os.system": lambda f: f("exit $(( $$ % 251 ))"),
    "subprocess.run": lambda f: f("echo $$", shell=True, capture_output=True).stdout,
    "subprocess.call": lambda f: f("exit $(( $$ % 251 ))", shell=True),
    "subprocess.check_call": lambda f: f(["true"]) or time.perf_counter(),  # 0, or it raises
    "subprocess.check_output": lambda f: f("echo $$", shell=True),
    **{f"subprocess.{name}": lambda f: f("echo $$") for name in ("getoutput", "getstatusoutput")},
    **{f"os.{name}": lambda f: f(16) for name in ("urandom", "getrandom")},
    "secrets.randbelow": lambda f: f(1 << 60),
    "secrets.randbits": lambda f: f(60),
    "secrets.choice": lambda f: f(range(1 << 60)),
    "tempfile.mkdtemp": lambda f: f(dir="."),
    "sys.stdin.read": lambda f: sys.stdin.read(2),
    "sys.stdin.readline": lambda f: sys.stdin.readline(),
    "sys.stdin.readlines": lambda f: sys.stdin.readlines(1),
    "getpass.getpass": lambda f: f(stream=io.StringIO()),
    "requests.request": lambda f: counted(lambda url: f("POST", url)),
    **{f"requests.{name}": lambda f: counted(f) for name in ("post", "put", "patch", "delete")},
}
MESSAGES: list[str] = []


class Counts(http.server.BaseHTTPRequestHandler):
    """Answers a message by how many there were."""

    def do_POST(self) -> None:
        MESSAGES.append(self.command)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d" % len(MESSAGES))

    do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


def counted(send: Callable[[str], Any]) -> object:
    with http.server.HTTPServer(("127.0.0.1", 0), Counts) as server:
        threading.Thread(target=server.handle_request).start()
        return pickle.loads(pickle.dumps(send(f"http://127.0.0.1:{server.server_port}"))).text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), rows(Does.ANSWER))
def test_an_answer_from_outside_is_another_one_each_time(
    name: str, row: FunctionRow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n3\n4\n"))
    monkeypatch.setattr("getpass.getpass", importlib.import_module("getpass").fallback_getpass)
    function = resolved(name)
    ask: Callable[[Any], object] = ASKED.get(name, lambda f: f())
    assert ask(function) != ask(function)


SAME_HERE = {"os.getppid", "socket.gethostname", "socket.getfqdn", "platform.node", "os.getloadavg"}


TAKES = {"os.statvfs": "'.'", "shutil.disk_usage": "'.'", "resource.getrusage": "resource.RUSAGE_SELF"}
NOW_AND_THEN = {"os.getloadavg", "os.statvfs", "shutil.disk_usage"}  # as others load the machine, and write


def test_what_differs_from_process_to_process() -> None:
    rows_ = [name for name, row in ROWS.items() if row.does is Does.DIFFER]
    names = [name for name in rows_ if not name.startswith(("torch.", "psutil."))]
    calls = (f"repr({name}({TAKES.get(name, '')}))" for name in names)
    code = f"import os, platform, resource, shutil, socket, threading; print([{', '.join(calls)}])"
    told = [
        eval(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(2)
    ]  # of ours
    differ = {name for name, one, other in zip(names, *told, strict=True) if one != other}
    assert differ - NOW_AND_THEN == {*names} - SAME_HERE - NOW_AND_THEN


@pytest.mark.parametrize(("name", "row"), rows(Does.CLOCK))
def test_a_clock_goes_on(name: str, row: FunctionRow) -> None:
    clock = resolved(name)
    first = clock()
    until = time.perf_counter() + 1
    while clock() == first and time.perf_counter() < until:
        pass
    assert clock() > first


GIVEN = {"time.strftime": lambda f: f("%Y", time.gmtime(0)), "time.asctime": lambda f: f(time.gmtime(0))}


@pytest.mark.parametrize(("name", "row"), rows(Does.CALENDAR))
def test_a_calendar_tells_the_time_that_it_is_given(name: str, row: FunctionRow) -> None:
    function = resolved(name)
    year = time.strftime("%Y")
    now = function("%Y") if name == "time.strftime" else function()
    assert year in str(now)
    if row.position is not None:
        then = GIVEN.get(name, lambda f: f(86400))(function)
        assert "1970" in str(then)
        assert row.position == (1 if name == "time.strftime" else 0)


# --- random numbers


def streams() -> tuple[bytes, ...]:
    """Where the streams stand that a script can seed."""
    position = np.random.get_state()
    return repr(random.getstate()).encode(), repr(position).encode(), torch.get_rng_state().numpy().tobytes()


@pytest.fixture
def streams_stay() -> Iterator[None]:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.usefixtures("streams_stay")
@pytest.mark.parametrize(("name", "row"), rows(Does.SEED, Does.SEED_BY_SYSTEM))
def test_what_seeds_sets_a_stream(name: str, row: FunctionRow) -> None:
    if name.startswith("torch.cuda."):
        pytest.skip("its streams are there where a GPU is")
    function = resolved(name)
    if row.position is not None:
        by_place = function(*[5]) and None, streams()
        function(**{row.keyword: 5} if row.keyword else {})
        assert streams() == by_place[1]
    if row.does is Does.SEED_BY_SYSTEM:
        function()
        first = streams()
        function()
        assert streams() != first


@pytest.mark.parametrize(("name", "row"), rows(Does.MAKE_STREAM))
def test_a_generator_without_a_seed_is_another_one_each_time(name: str, row: FunctionRow) -> None:
    make = resolved(name)
    assert pickle.dumps(make()) != pickle.dumps(make())
    assert pickle.dumps(make(7)) == pickle.dumps(make(7))
    assert pickle.dumps(make(None)) != pickle.dumps(make(None))


@pytest.mark.parametrize(("name", "row"), rows(Does.DRAW_BY_SYSTEM))
def test_no_seed_makes_these_alike(name: str, row: FunctionRow) -> None:
    first, second = resolved(name)(), resolved(name)()
    first.seed(1)
    second.seed(1)
    assert first.random() != second.random()
    with pytest.raises(NotImplementedError):
        pickle.dumps(first)  # so rank 0 cannot hand it on


ARGUMENTS = [(), (1,), (0.5,), ([1, 2, 3],), (1, 2), (0.5, 1.0), (1, 2, 3), (0.1, 0.2, 0.3), (5, 0.5), (3, [0.2, 0.8]),
             ([1.0], [[1.0]]), (4, 0.5, 2), ([1, 2, 3], 2), (2.0,)]  # fmt: skip


def tensors_given() -> list[tuple[Any, ...]]:
    flat = torch.linspace(-0.2, 0.8, 16).view(4, 4)  # of both signs: rrelu draws for what is below 0
    images, volumes = torch.rand(2, 2, 4, 4), torch.rand(2, 2, 4, 4, 4)
    counts, odds = torch.full((3,), 4.0), torch.full((3,), 0.5)
    return [
        *(
            (odds,),
            (9,),
            ((3, 3),),
            (0, 9, (3,)),
            (flat.clone(),),
            (flat.clone(), 0.5),
            (flat.clone(), 0.5, True),
        ),
        *((odds, 2), (odds, odds), (counts, odds), (counts.long(), 9), (images.clone(), 0.5, True)),
        *((flat.clone(), 0.1, 0.3, True), (images, 2, 2), (volumes, 2, 2), (volumes, 0.5)),
        (images, images, images, None, 0.5),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("streams_stay")
@pytest.mark.parametrize(("name", "row"), rows(Does.DRAW))
def test_what_draws_moves_a_stream(name: str, row: FunctionRow) -> None:
    if name in ("numpy.random.random_integers", "random.randbytes") and not hasattr(
        np.random, "random_integers"
    ):
        pytest.skip("numpy took it out")
    function = resolved(name)
    for given in tensors_given() if name.startswith("torch.") else ARGUMENTS:
        before = streams()
        with contextlib.suppress(TypeError, ValueError, IndexError, RuntimeError, AttributeError):
            function(*given)
        if streams() != before:
            return
    pytest.fail("no stream moved")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("home", ["random", "numpy.random"])
def test_no_function_that_draws_is_missing(home: str) -> None:
    library = importlib.import_module(home)
    for word in dir(library):
        function = getattr(library, word)
        is_function = callable(function) and not inspect.isclass(function) and not word.startswith("_")
        if is_function and word not in ("seed", "set_state", "setstate", "test", "set_bit_generator"):
            known = ROWS.get(f"{home}.{word}")
            if any(_moves(function, given) for given in ARGUMENTS):
                assert known is not None, word
                assert known.does is Does.DRAW, word


def _moves(function: Callable[..., object], given: tuple[Any, ...]) -> bool:
    before = streams()
    with contextlib.suppress(TypeError, ValueError, IndexError, NotImplementedError):
        function(*given)
    return streams() != before


# --- names of methods


@pytest.mark.parametrize(
    ("word", "does"),
    {
        "save": MethodDoes.WRITE,
        "save_pretrained": MethodDoes.WRITE,
        "to_csv": MethodDoes.WRITE,
        "tofile": MethodDoes.WRITE,
        "write": None,
        "save_for_backward": None,
        "saved_tensors": None,
        "write_image": MethodDoes.MAY_WRITE,
        "to_json": MethodDoes.MAY_WRITE,
        "write_text": MethodDoes.WRITE_PATH,
        "mkdir": MethodDoes.WRITE_PATH,
        "rename": MethodDoes.CHANGE_PATH,
        "open": MethodDoes.OPEN,
        "savefig": MethodDoes.WRITE,
        "print_figure": MethodDoes.WRITE,
        "uniform_": MethodDoes.DRAW,
        "step": None,
    }.items(),
)
def test_methods_are_known_by_their_names(word: str, does: MethodDoes | None) -> None:
    assert method(word) is does


OF_PATHS = (
    *("write_text", "write_bytes", "mkdir", "unlink", "rmdir", "touch", "symlink_to", "hardlink_to"),
    *("rename", "replace", "chmod", "open"),
)


@pytest.mark.parametrize("word", OF_PATHS)
def test_methods_of_paths_are_methods_of_paths(word: str) -> None:
    assert hasattr(Path, word)
    assert method(word) in (MethodDoes.WRITE_PATH, MethodDoes.CHANGE_PATH, MethodDoes.OPEN)


def test_the_helpers_know_the_same_libraries_that_report() -> None:
    assert set(held.REPORTING) == TRACKING
