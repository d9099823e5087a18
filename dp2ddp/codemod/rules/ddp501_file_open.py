"""DDP501: files opened for writing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, Lift, PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import Effect
from dp2ddp.codemod.facts.handles import STORES, is_only_written, reads_of, writes_of
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.meeting_places import only_in_main_flow
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class FileOpen(Rule):
    """Let rank 0 alone write files.

    ## What it does
    `open(path, "w")` becomes `open_on_rank_zero(path, "w")`: rank 0 writes the file, the others write to
    nowhere. The same for log files of `logging`, and for `gzip.open` and its like. An HDF5 file that is
    opened with "r+" and only read is opened with "r". Stores and databases that are only written (h5py, zarr, sqlite3,
    shelve, lmdb, memory maps) are opened by rank 0 alone; those that are read as well are a hazard. A function of any
    library that is given a path and a mode that writes counts, too.

    ## Why
    W ranks writing one file tear it, or write every line W times.

    ## Safety
    All ranks meet before and after the opening, so that a test for the file says the same on each. A mode that cannot
    be read off is treated as writing.

    ## References
    docs/semantics.md#printing, docs/semantics.md#saving.
    """

    code = "DDP501"
    name = "file-open"
    nodes = ("Call", "Name", "SimpleString")
    examples = (
        Rewrites(
            before="""
                import logging
                import torch
                net = torch.nn.DataParallel(net)
                with open("log.csv", "w") as log:
                    log.write("epoch,loss")
                logger.addHandler(logging.FileHandler("run.log"))
            """,
            after="""
                import logging
                import torch
                net = torch.nn.DataParallel(net)
                with open_on_rank_zero("log.csv", "w") as log:
                    log.write("epoch,loss")
                logger.addHandler(object_on_rank_zero(logging.FileHandler, "run.log"))
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                def write(text, path):
                    path = path_of(path)
                    with path.open("wt") as file:
                        file.write(text)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                def write(text, path):
                    path = path_of(path)
                    with open_on_rank_zero(path, "wt") as file:
                        file.write(text)
            """,
        ),
        Rewrites(
            before="""
                import h5py
                import torch
                net = torch.nn.DataParallel(net)
                def load(path):
                    f = h5py.File(path, "r+")
                    data = f["data"][:].astype("float32")
                    f.close()
                    return data
            """,
            after="""
                import h5py
                import torch
                net = torch.nn.DataParallel(net)
                def load(path):
                    f = h5py.File(path, "r")
                    data = f["data"][:].astype("float32")
                    f.close()
                    return data
            """,
        ),
        Rewrites(
            before="""
                import sqlite3
                import torch
                net = torch.nn.DataParallel(net)
                db = sqlite3.connect("runs.db")
                db.execute("insert into log values (1)")
                db.commit()
            """,
            after="""
                import sqlite3
                import torch
                net = torch.nn.DataParallel(net)
                db = object_on_rank_zero(sqlite3.connect, "runs.db")
                db.execute("insert into log values (1)")
                db.commit()
            """,
        ),
        Flags(
            before="""
                import h5py
                import torch
                net = torch.nn.DataParallel(net)
                with h5py.File("cache.h5", "a") as f:
                    if "x" not in f:
                        f["x"] = compute()
                    x = f["x"][:]
            """,
            message="open for writing",
        ),
        Flags(
            before="""
                import sqlite3
                import torch
                net = torch.nn.DataParallel(net)
                db = sqlite3.connect("runs.db")
                db.execute("insert into log values (1)")
                db.commit()
                best = db.execute("select max(acc) from log").fetchone()[0]
            """,
            message="sqlite3.connect() opens a file that every rank would write to",
        ),
        Flags(
            before="""
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                features = np.memmap("features.dat", dtype="float32", mode="w+", shape=(8, 3))
                features[0] = encode(x)
                loss = net(features)
            """,
            message="numpy.memmap() opens a file that every rank would write to",
        ),
        Untouched(
            """
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                data = np.memmap("train.bin", dtype="uint16", mode="r")
            """
        ),
        Untouched(
            'import torch\nnet = torch.nn.DataParallel(net)\nwith open("words.txt") as words:\n    pass'
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for effect in facts.effects:
            if effect.kind in _EDITS:
                hazard = only_in_main_flow(facts, effect.call.node, "a file is opened for writing")
                yield from (hazard,) if hazard else _EDITS[effect.kind](facts, strategy, effect)


BECAUSE = "one run writes its files once: rank 0 does"


def _opener(facts: Facts, strategy: Strategy, effect: Effect) -> str:
    """The helper that opens a file: for a `with` block, or to stay open."""
    is_block = isinstance(facts.script.scopes.parents[effect.call.node], ast.withitem)
    return strategy.helper("open_on_rank_zero" if is_block else "log_on_rank_zero")


def _opened(facts: Facts, strategy: Strategy, effect: Effect) -> Iterator[Finding]:
    helper = _opener(facts, strategy, effect)
    yield Replace(effect.call.node.func, facts.names.helper(helper), BECAUSE)
    yield Lift(helper, BECAUSE)


def _path_opened(facts: Facts, strategy: Strategy, effect: Effect) -> Iterator[Finding]:
    """`path.open("w")` to `open_on_rank_zero(path, "w")`."""
    function = effect.call.node.func
    assert isinstance(function, ast.Attribute)
    rest = {
        f"a{index}": argument
        for index, argument in enumerate((*effect.call.node.args, *effect.call.node.keywords))
    }
    holes = ", ".join(["{path}", *(f"{{{name}}}" for name in rest)])
    helper = _opener(facts, strategy, effect)
    code = f"{facts.names.helper(helper)}({holes})"
    yield Replace(effect.call.node, code, BECAUSE, {"path": function.value, **rest})
    yield Lift(helper, BECAUSE)


def _opened_otherwise(facts: Facts, strategy: Strategy, effect: Effect) -> Iterator[Finding]:
    if effect.call.name in STORES and (reads := reads_of(facts.script, effect.call)):
        yield _opened_to_read(facts, effect, reads[0])
        return
    is_handler = effect.kind in ("handler", "rotating")
    helper = strategy.helper("handler_on_rank_zero" if is_handler else "object_on_rank_zero")
    yield PassTo(effect.call.node, facts.names.helper(helper), BECAUSE)
    yield Lift(helper, BECAUSE)


def _opened_to_read(facts: Facts, effect: Effect, read: ast.AST) -> Finding:
    """Ranks that did not open the file could not read it; and HDF5 lets one process open it for writing."""
    mode = effect.call.argument(1, "mode")
    is_hdf5 = effect.call.name == "h5py.File"
    if (
        is_hdf5
        and mode is not None
        and literal(mode) in ("r+", "a")
        and not writes_of(facts.script, effect.call)
    ):
        return Replace(mode, '"r"', "it is only read here, and HDF5 lets one process open a file for writing")
    return Hazard(
        read,
        f"{'an HDF5 file' if is_hdf5 else effect.call.name} is read that is open for writing, which one process can "
        "do: the other ranks would read nothing",
        "close it and open it with 'r' to read",
    )


def _read_and_written(facts: Facts, strategy: Strategy, effect: Effect) -> Iterator[Finding]:
    if is_only_written(facts.script, effect.call):
        yield PassTo(effect.call.node, facts.names.helper(strategy.helper("object_on_rank_zero")), BECAUSE)
        yield Lift(strategy.helper("object_on_rank_zero"), BECAUSE)
        return
    name = effect.call.name or ""
    yield Hazard(
        effect.call.node,
        f"{name}() opens a file that every rank would write to, and what it holds is used",
        next((advice for start, advice in _ADVICE.items() if name.startswith(start)), _ADVICE["dbm"]),
    )


_ADVICE = {
    "numpy": "fill it in a script of its own, once, and open it here with mode='r'",
    "lmdb": "fill it in a script of its own, once, and open it here with readonly=True, lock=False",
    "sqlite3": "only write to the database here (rank 0 does then), and keep what you ask it for in variables as well",
    "os.open": "open it with open(path, mode), which is converted",
    "shelve": "keep a dict, and only assign to the shelf (rank 0 does then); or open it with flag='r' to read",
    "dbm": "keep what you look up in a dict as well, and only assign to the file (rank 0 does then)",
}


def _log_file(facts: Facts, strategy: Strategy, effect: Effect) -> Iterator[Finding]:
    """`basicConfig(filename=f, filemode=m)` to `basicConfig(stream=open_on_rank_zero(f, m))`."""
    call = effect.call
    filename, mode = call.keyword("filename"), call.keyword("filemode")
    assert filename is not None
    helper = facts.names.helper(strategy.helper("log_on_rank_zero"))
    opened = f"{helper}({{path}}, {'{mode}' if mode else chr(34) + 'a' + chr(34)})"
    holes: dict[str, ast.AST] = {"path": filename.value, **({"mode": mode.value} if mode else {})}
    yield Replace(filename, f"stream={opened}", BECAUSE, holes)
    if mode:
        yield DropArgument(mode, call.node, BECAUSE)
    yield Lift(strategy.helper("log_on_rank_zero"), BECAUSE)


_EDITS = {
    "open": _opened,
    "opener": _opened_otherwise,
    "path open": _path_opened,
    "read and written": _read_and_written,
    "handler": _opened_otherwise,
    "rotating": _opened_otherwise,
    "log file": _log_file,
}
