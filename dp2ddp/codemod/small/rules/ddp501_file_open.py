"""DDP501: files that are opened to be written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.small.rule import Finding, Rule, call_by, rename

BECAUSE = "rank 0 writes the file"


class FileOpen(Rule):
    """Write a file once.

    ## What it does
    `open(path, "w")` becomes `open_on_rank0(path, "w")`; other openers (gzip, h5py) are called by `open_by_on_rank0`.

    ## Why
    Every rank would write the same lines into one file, over each other.
    """

    code = "DDP501"
    name = "file-open"
    nodes = ("Call", "Name")
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            yield from _look_at(module, call)


def _look_at(module: Module, call: Call) -> Iterator[Finding]:
    row = what_is(call.name)
    if call.name == "builtins.open":
        if may_write(call, 1):
            yield rename(call.node.func, "open_on_rank0", BECAUSE)
    elif row and row.does is Does.OPEN:
        if may_write(call, row.position):
            yield call_by(call.node, "open_by_on_rank0", BECAUSE)
    elif row and row.does is Does.KEEP_STORE:
        if not _only_reads(call):
            yield Hazard(
                call.node,
                f"{call.name}: what it opens is written in ways that one process alone can",
                "let rank 0 do it by ask_rank0(function), or open it read-only",
            )
    elif row is None and not module.program.is_local(call.name) and _is_method(module, call):
        yield call_by(call.node, "open_path_on_rank0", BECAUSE)


def _is_method(module: Module, call: Call) -> bool:
    is_of_library = (call.name or "").startswith(("torch.", "builtins.", "PIL."))
    named = method(call.method) is MethodDoes.OPEN and call.method not in module.program.methods
    return named and not is_of_library and may_write(call, 0)


def may_write(call: Call, position: int | None) -> bool:
    """Whether the mode of an opener writes, or cannot be read."""
    if call.may_have_more:
        return True
    mode = call.argument(position, "mode")
    match mode:
        case None:
            return False
        case ast.Constant(value=str(text)):
            return bool(set(text) & set("wax+"))
    return True


def _only_reads(call: Call) -> bool:
    """`lmdb.open(path, readonly=True)`, `np.memmap(path, mode="r")`."""
    given = call.keyword("readonly")
    if given is not None and isinstance(given.value, ast.Constant) and given.value.value is True:
        return True
    mode = call.argument(2 if call.name == "numpy.memmap" else 1, "mode")
    return isinstance(mode, ast.Constant) and mode.value in ("r", "c")
