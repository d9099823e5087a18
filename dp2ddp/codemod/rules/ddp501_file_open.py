"""Write a file once.

`torch.save` becomes `save_on_rank0`, called or handed on. `open(path, "w")` becomes `open_on_rank0(path, "w")`; other
openers (gzip, zipfile) are called by `open_by_on_rank0`. A store that one process alone may write (h5py, sqlite3, lmdb,
shelve, a memory map) is made by rank 0, if it is only written; it is a hazard if it is read as well. What is opened to
be read stays as it is, and `h5py.File(path, "r+")` that is only read becomes `"r"`. A program that is started is rank
0's, and all ranks hear it: at once (`os.popen(command).read()`), or whenever they ask (`hold_on_rank0`).

Every rank would write the same lines into one file, over each other. When every rank saves to one path and loads from
it, 88 of 120 loads failed and 19 gave a mixture of two ranks.

A mode that cannot be read off is asked for at run time. A function of a library that nobody has heard of counts if
it is given a mode that writes. A checkpoint is written beside its place and moved there: it is never half one. A link,
and a file with a second name, are written where they are.

docs/semantics.md#printing, docs/semantics.md#saving, docs/semantics.md#wrapper.
"""

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from dp2ddp.codemod.edits import Finding, Hazard, Replace
from dp2ddp.codemod.knowledge.functions import Does, FunctionRow, does, what_is
from dp2ddp.codemod.knowledge.methods import WRITING_MODE, MethodDoes, method
from dp2ddp.codemod.looks.mentions import handed_on, handed_to, replaced
from dp2ddp.codemod.looks.uses import is_harmless, is_only_read, is_only_written, row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import SCOPES, constant
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags, hand_on, rename

BECAUSE = "rank 0 writes the file"
SAVES = Reason("torch-save", "rank 0 saves, once for all ranks")
HEARS = "rank 0 starts the program, and all ranks hear it"
NOWHERE = re.compile(r"os\.devnull|['\"]/dev/null['\"]|\d+")
# what is given to `archive.open(name)` is called so
PATH_NAME = re.compile(r"path|name|url|uri|member|info\b")


class FileOpen(Rule):
    examples = (
        diff("""
              import gzip
              import os
              import sqlite3
              import torch
            - torch.save(net.state_dict(), "best.pt")
            - writers = {"pt": torch.save}
            + save_on_rank0(net.state_dict(), "best.pt")
            + writers = {"pt": save_on_rank0}
            - commit = os.popen("git rev-parse HEAD").read().strip()
            + commit = ask_rank0(lambda: os.popen("git rev-parse HEAD").read()).strip()
            - with open("log.csv", "w") as log:
            + with open_on_rank0("log.csv", "w") as log:
                  log.write("epoch,loss")
            - with gzip.open(path, mode) as packed:
            + with open_by_on_rank0(gzip.open, path, mode) as packed:
                  packed.write(text)
            - db = sqlite3.connect("runs.db")
            + db = make_on_rank0(sqlite3.connect, "runs.db")
              db.execute("insert into log values (1)")
        """),
        flags("""
            # h5py.File: one process alone can write what it opens
            import h5py
            with h5py.File("cache.h5", "a") as f:
                if "x" not in f:
                    f["x"] = compute()
        """),
        Untouched("""
            import numpy as np
            with open("words.txt") as words:
                data = np.memmap("train.bin", dtype="uint16", mode="r")
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from replaced(module, {"torch.save": "save_on_rank0"}, SAVES)
        for call in module.calls:
            yield from _look_at(module, call)
        yield from handed_to(module, {Does.START_PROGRAM: "hold_on_rank0"}, HEARS)
        for node, name in handed_on(module, Does.KEEP_STORE):
            row = what_is(name)
            if row and (not re.fullmatch(row.harmless or "(?!)", row.usual or "") or _may_write(module, row)):
                yield Hazard(node, ONE_WRITER.of(name=name))
        for node, name in handed_on(module, Does.OPEN):
            if name == "builtins.open":
                yield rename(node, "open_on_rank0", BECAUSE)
            else:
                yield hand_on(module, node, "open_by_on_rank0", BECAUSE)


def _may_write(module: Module, row: FunctionRow) -> bool:
    """Whether something without a name (`OPENERS[kind](path, "w")`) is called as such a store is opened to write."""
    calls = ((home, call) for home, call in module.program.calls if call.name is None)
    modes = ((home, mode) for home, call in calls if (mode := call.argument(row.position, row.keyword)))
    return any(_writes(mode) or home.text(mode).endswith("mode") for home, mode in modes)


def _look_at(module: Module, call: Call) -> Iterator[Finding]:
    row = row_of(module, call)
    if row is not None and is_harmless(module, call, row):
        return
    kind = row.does if row else None
    if call.name == "builtins.open":
        path = call.argument(0, "file")
        if path is None or not NOWHERE.fullmatch(module.text(path)):
            yield rename(call.node.func, "open_on_rank0", BECAUSE)
    elif row is not None and kind in (Does.KEEP_STORE, Does.START_PROGRAM):
        yield _kept(module, call, row)
    elif kind is Does.OPEN and does(call.name) is None:
        yield Hazard(call.node, ONE_WRITER.of(name=call.name))
    elif kind is Does.OPEN or row is None and _opens_by_looks(module, call):
        yield call_by(call.node, "open_by_on_rank0", BECAUSE)
    elif row is None and _opens_path(module, call):
        yield call_by(call.node, "open_path_on_rank0", BECAUSE)


def _kept(module: Module, call: Call, row: FunctionRow) -> Finding:
    """What rank 0 alone opens, and all ranks if it is only read."""
    mode = call.argument(row.position, row.keyword)
    if mode and call.name == "h5py.File" and constant(mode) == "r+" and is_only_read(module, call.node):
        return Replace(mode, '"r"', "nothing is written into it, and ranks can read it together")
    is_program = row.does is Does.START_PROGRAM
    if is_program and (heard := _heard_at_once(module, call.node)):
        return Replace(heard, "ask_rank0(lambda: {it})", HEARS, {"it": heard}, helpers=("ask_rank0",))
    if call.name not in NO_OBJECTS and is_only_written(module, call.node):
        return call_by(call.node, "make_on_rank0", BECAUSE)
    if is_program:
        return call_by(call.node, "hold_on_rank0", HEARS)
    return Hazard(call.node, ONE_WRITER.of(name=call.name))


ONE_WRITER = Reason(
    "one-writer",
    "{name}: one process alone can write what it opens",
    "let rank 0 do it by ask_rank0(function), or open it to read only",
)
HEARD = ("read", "readline", "readlines", "communicate")
# What these return is no object of which the methods are called.
NO_OBJECTS = ("os.open", "tempfile.mkstemp", "tempfile.NamedTemporaryFile", "argparse.FileType")


def _heard_at_once(module: Module, node: ast.expr) -> ast.expr | None:
    """`os.popen(command).read()`, `Popen(words).communicate()`; not in a class, of whose names a lambda knows none."""
    parts = [*takewhile(lambda each: isinstance(each, ast.Attribute), module.around(node))]
    call = module.call_of(parts[-1]) if parts else None
    is_in_class = isinstance(module.enclosing(node, *SCOPES), ast.ClassDef)
    return call.node if call and call.method in HEARD and not is_in_class else None


def _opens_by_looks(module: Module, call: Call) -> bool:
    """`lib.open_store(path, "w")`, of a library that nobody has heard of."""
    name = call.name or ""
    last = name.rpartition(".")[2]
    is_known = name.startswith(("builtins.", "torch.")) or module.program.is_local(name)
    opens = "." in name and not is_known and (last.startswith("open") or last[:1].isupper())
    return opens and _writes(call.argument(1, "mode"))


def _opens_path(module: Module, call: Call) -> bool:
    """`path.open("w")`, `path.open(mode)`; not `archive.open(name)`, nor `Image.open(path)`."""
    is_method = call.name is None and method(call.method) is MethodDoes.OPEN
    if not is_method or call.method in module.program.methods:
        return False
    mode = call.argument(0, "mode")
    if call.may_have_more or mode is None or isinstance(mode, ast.Constant):
        return call.may_have_more or _writes(mode)
    return len(call.node.args) < 2 and not PATH_NAME.search(module.text(mode))


def _writes(mode: ast.expr | None) -> bool:
    return WRITING_MODE.fullmatch(str(constant(mode))) is not None
