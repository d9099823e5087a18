"""DDP503: effects on the file system and answers of the outside."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.small.rule import Finding, Rule, call_by, rename

BECAUSE = "one run does it once"
HELPERS = {Does.WRITE: "run_on_rank0", Does.ANSWER: "ask_rank0"}


class FileSystem(Rule):
    """Make, move and remove files once, and ask the outside once.

    ## What it does
    `os.makedirs(path)` becomes `run_on_rank0(os.makedirs, path)`; `input()` becomes `ask_rank0(input)`: all ranks get
    rank 0's answer. A method that by its name writes a file (`frame.to_csv(path)`) is called by `write_on_rank0`.

    ## Why
    Ranks that make or remove one path at once fail; a process number or a temporary folder differs in each.
    """

    code = "DDP503"
    name = "file-system"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            kind = does(call.name)
            if kind in HELPERS:
                yield call_by(call.node, HELPERS[kind], BECAUSE)
            elif kind is Does.FOLDER:
                yield rename(call.node.func, "TemporaryFolderOnRank0", BECAUSE)
            elif kind is None and _writes(module, call):
                yield call_by(call.node, "write_on_rank0", BECAUSE)


def _writes(module: Module, call: Call) -> bool:
    """Whether it is a method of something unknown that by its name writes a file."""
    known = method(call.method)
    name = call.name or ""
    if known not in (MethodDoes.WRITE, MethodDoes.WRITE_PATH) or call.method in module.program.methods:
        return False
    if name.startswith(("torch.", "builtins.")) or module.program.is_local(call.name):
        return False
    return known is MethodDoes.WRITE_PATH or not call.is_bare
