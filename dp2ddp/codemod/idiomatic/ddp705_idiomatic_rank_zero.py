"""DDP705: what writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Guard, Hazard, InsertAfter, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp703_idiomatic_download import first_on_rank0
from dp2ddp.codemod.idiomatic.effects import opens_to_write, reads, writes
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.idiomatic.models import wrapped_names
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark, words_of
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import is_main_guard
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched
from dp2ddp.codemod.uses import is_harmless, loads, row_of

BECAUSE = "rank 0 writes"
READ_ALONE = "let rank 0 read it, too, and broadcast what it finds; or take the exact style"
STORE = "every rank opens this store to write: rank 0 alone should, or each its own"
LOOSE = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BoolOp)  # what `and` would tear
BLOCKS = ("body", "orelse", "finalbody")


class RankZeroWrites(IdiomaticRule):
    """Let rank 0 write.

    ## What it does
    Statements that only write (checkpoints, plots, copies, commands) go under `if rank == 0:`. `os.makedirs` gets
    `exist_ok=True`, as every rank may make a folder. What opens a file, or a log handler, opens `os.devnull` on other
    ranks; trackers write to a temporary folder there, and Weights & Biases is off.

    ## Why
    Ranks that write one file at once tear it.

    ## Safety
    What a writing call returns would be missing on other ranks: there all ranks call it, and a comment says so.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP705"
    name = "idiomatic-rank-zero"
    nodes = ("Arg", "BaseStatement")
    examples = (
        Rewrites(
            before="""
                import os
                import torch
                os.makedirs("out")
                torch.save(net.state_dict(), "out/net.pt")
                torch.save(optimizer.state_dict(), "out/optimizer.pt")
                log = open("out/log.txt", "w")
            """,
            after="""
                import os
                import torch
                os.makedirs("out", exist_ok=True)
                if rank == 0:
                    torch.save(net.state_dict(), "out/net.pt")
                    torch.save(optimizer.state_dict(), "out/optimizer.pt")
                log = open("out/log.txt" if rank == 0 else os.devnull, "w")
            """,
        ),
        Untouched('lines = open("names.txt").read()'),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        done = first_on_rank0(module)
        guarded: dict[ast.stmt, None] = {}
        for call in module.calls:
            if call.node in done:
                continue
            if is_folder(call):
                yield from _shared_folder(call)
            elif writes(module, call):
                statement = module.statement(call.node)
                if isinstance(statement, ast.Expr):
                    guarded[statement] = None
                else:
                    yield remark(
                        module, statement, "every rank does this, as what it returns is used: rank 0's alone?"
                    )
            elif opens_to_write(module, call):
                with_ = _plain_with(module, call)
                if _reads_too(module, call):
                    yield Hazard(call.node, "all ranks read what rank 0 alone writes here", READ_ALONE)
                elif with_ is None:
                    yield from _to_nowhere(module, call, call.argument(0, "file"))
                else:
                    guarded[with_] = None
            else:
                yield from _tracked(module, call)
        yield from _guards(module, guarded)


def _reads_too(module: Module, call: Call) -> bool:
    """`with open(path, "a+") as file: file.seek(0); lines = file.readlines()`."""
    item = module.parents[call.node]
    target = item.optional_vars if isinstance(item, ast.withitem) else None
    if isinstance(item, ast.Assign):
        target = item.targets[0]
    uses = (home.parents[node] for home, node in loads(module, target))
    return any(isinstance(each, ast.Attribute) and each.attr.startswith(("read", "seek")) for each in uses)


def is_folder(call: Call) -> bool:
    """Whether it makes a folder in a way that may find it there."""
    is_path = call.method == "mkdir" and does(call.name) is not Does.WRITE
    return call.name == "os.makedirs" or is_path or call.name == "pathlib.Path.mkdir"


def _shared_folder(call: Call) -> Iterator[Finding]:
    given = call.keyword("exist_ok")
    if given is None and len(call.node.args) < 3:
        yield Change(SetArgument(call.node, "exist_ok", "True", "every rank may make the folder"))
    elif given is not None and isinstance(given.value, ast.Constant) and not given.value.value:
        yield Change(Replace(given.value, "True", "every rank may make the folder"))


def _plain_with(module: Module, call: Call) -> ast.With | None:
    """`with open(path, "w") as file:`, if all that is done in it is to call functions of libraries: only writing."""
    item = module.parents[call.node]
    with_ = module.parents[item]
    if not isinstance(item, ast.withitem) or not isinstance(with_, ast.With) or len(with_.items) > 1:
        return None
    inside = {node for statement in with_.body for node in ast.walk(statement)}
    calls = [each for each in module.calls if each.node in inside]
    is_local = any(
        module.program.is_local(each.name)
        or each.method in module.program.methods
        or not (each.name or each.method)
        for each in calls
    )
    plain = all(isinstance(node, (ast.Expr, ast.For)) for node in inside if isinstance(node, ast.stmt))
    return with_ if plain and not is_local else None


def _to_nowhere(module: Module, call: Call, path: ast.expr | None) -> Iterator[Finding]:
    words = words_of(module)
    if path is None or not call.name:
        yield remark(module, call.node, "every rank opens this file to write: rank 0 alone should")
        return
    code = "{path}" if not isinstance(path, (ast.IfExp, ast.Lambda)) else "({path})"
    nowhere = f"{code} if {words.is_rank0} else {words['os']}.devnull"
    yield Change(Replace(path, nowhere, BECAUSE, {"path": path}), ("os", "dist"))


def _tracked(module: Module, call: Call) -> Iterator[Finding]:
    words, kind, name = words_of(module), does(call.name), call.name or ""
    row = row_of(module, call)
    if row is not None and row.does is Does.KEEP_STORE and not is_harmless(module, call, row):
        yield remark(module, call.node, STORE)
    if kind is Does.HANDLE_LOG:
        yield from _to_nowhere(module, call, call.argument(0, "filename"))
    elif name == "logging.basicConfig" and (given := call.keyword("filename")):
        yield from _to_nowhere(module, call, given.value)
    elif kind is Does.TRACK:
        yield from _elsewhere(module, call)
    elif name == "wandb.init" and call.keyword("mode") is None:
        code = f'"online" if {words.is_rank0} else "disabled"'
        yield Change(SetArgument(call.node, "mode", code, BECAUSE), ("dist",))
    elif name in tuple(
        f"{each}.{word}" for each in TRACKING for word in ("init", "start_run", "Run", "Experiment")
    ):
        yield remark(module, call.node, "every rank reports its run here: rank 0 alone should")
    elif name.startswith("tqdm.") and name.endswith((".tqdm", ".trange")) and call.keyword("disable") is None:
        yield Change(SetArgument(call.node, "disable", f"{words.rank} != 0", "one bar"), ("dist",))


def _elsewhere(module: Module, call: Call) -> Iterator[Finding]:
    words, folder = words_of(module), call.argument(0, "log_dir") or call.argument(None, "logdir")
    elsewhere, needed = f"{words['tempfile']}.mkdtemp()", ("tempfile", "dist")
    if folder is not None:
        code = f"{{folder}} if {words.is_rank0} else {elsewhere}"
        yield Change(Replace(folder, code, BECAUSE, {"folder": folder}), needed)
    elif call.is_bare and not (call.name or "").startswith("visdom"):
        yield Change(
            SetArgument(call.node, "log_dir", f"None if {words.is_rank0} else {elsewhere}", BECAUSE), needed
        )
    else:
        yield remark(module, call.node, "every rank reports its run here: rank 0 alone should")


def _guards(module: Module, guarded: dict[ast.stmt, None]) -> Iterator[Finding]:
    """Statements that follow each other come into one block."""
    words = words_of(module)
    names = wrapped_names(module.program)
    for run in _runs(module, guarded):
        parent = module.parents[run[0]]
        if isinstance(parent, ast.If) and parent.body == run and not parent.orelse:
            code = "({test})" if isinstance(parent.test, LOOSE) else "{test}"
            test = {"test": parent.test}
            yield Change(Replace(parent.test, f"{code} and {words.is_rank0}", BECAUSE, test), ("dist",))
        else:
            yield Change(Guard(run[0], run[-1], words.is_rank0, BECAUSE), ("dist",))
        if _is_read_again(module, run[-1]):
            code = f"{words['dist']}.barrier()  # before others read it"
            yield Change(InsertAfter(run[-1], code, "other ranks read what rank 0 writes"), ("dist",))
        inside = {node for statement in run for node in ast.walk(statement)}
        for call in module.calls:
            if call.node in inside and last_word(call.node.func) in names:
                why = "rank 0 alone runs it here, and so not through DDP"
                model = {"model": call.node.func}
                yield Change(Replace(call.node.func, "{model}.module", why, model))


def _is_read_again(module: Module, statement: ast.stmt) -> bool:
    """Whether the function goes on to read files, in a place that all ranks come to."""
    function = module.function_around(statement)
    if getattr(function, "name", "") in ("__getitem__", "__iter__", "__call__", "collate_fn"):
        return False
    if any(
        isinstance(each, (ast.If, ast.Try)) and not is_main_guard(each) for each in module.around(statement)
    ):
        return False
    return any(
        call.node.lineno > statement.lineno and reads(call) and module.function_around(call.node) is function
        for call in module.calls
    )


def _runs(module: Module, guarded: dict[ast.stmt, None]) -> Iterator[list[ast.stmt]]:
    parents = {module.parents[statement]: None for statement in guarded}
    for parent in parents:
        for name in BLOCKS:
            block = getattr(parent, name, None)
            run: list[ast.stmt] = []
            for statement in block if isinstance(block, list) else ():
                if statement in guarded:
                    run.append(statement)
                elif run:
                    yield run
                    run = []
            if run:
                yield run
