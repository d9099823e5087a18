"""DDP705: what writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Guard, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp703_idiomatic_download import first_on_rank0
from dp2ddp.codemod.idiomatic.effects import is_folder, opening_mode, writes
from dp2ddp.codemod.idiomatic.looking import inside, runs_of
from dp2ddp.codemod.idiomatic.models import wrapped_names
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.looks.uses import is_harmless, row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.codemod.rule import Change, Finding, Rule, Untouched, diff

BECAUSE = "rank 0 writes"
RETURNS = "every rank does this, as what it returns is used: rank 0's alone?"
READS_TOO = (
    "every rank writes this file, as it is read as well: let rank 0 do it, and broadcast what it finds"
)
WRAPPER = "the wrapper itself, which is DDP's, and needs a process group to be loaded: save net.module"
STORE = "every rank opens this store to write: rank 0 alone should, or each its own"
REPORTS = "every rank reports its run here: rank 0 alone should"
OPENS = "every rank opens this file to write: rank 0 alone should"
MAY_EXIST = "every rank may make the folder"
LOOSE = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BoolOp)  # what `and` would tear
RUNS = ("init", "start_run", "Run", "Experiment")


class RankZeroWrites(Rule):
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
        diff("""
              import os
              import torch
            - os.makedirs("out")
            - torch.save(net.state_dict(), "out/net.pt")
            - torch.save(optimizer.state_dict(), "out/optimizer.pt")
            - log = open("out/log.txt", "w")
            + os.makedirs("out", exist_ok=True)
            + if rank == 0:
            +     torch.save(net.state_dict(), "out/net.pt")
            +     torch.save(optimizer.state_dict(), "out/optimizer.pt")
            + log = open("out/log.txt" if rank == 0 else os.devnull, "w")
        """),
        Untouched('lines = open("names.txt").read()'),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        done = first_on_rank0(module)
        guarded: dict[ast.stmt, None] = {}
        for call in module.calls:
            statement, mode = module.statement(call.node), opening_mode(module, call)
            if does(call.name) is Does.SAVE and _saves_wrapper(module, call):
                yield remark(module, call.node, WRAPPER)
            if call.node in done:
                continue
            if is_folder(call):
                yield from _shared_folder(call)
            elif writes(module, call) and isinstance(statement, ast.Expr):
                guarded[statement] = None
            elif writes(module, call):
                yield remark(module, statement, RETURNS)
            elif "+" in mode:
                yield remark(module, statement, READS_TOO)
            elif set(mode) & set("wax") and _only_writes(module, statement):
                guarded[statement] = None
            elif set(mode) & set("wax"):
                yield from _to_nowhere(module, call, call.argument(0, "file"))
            else:
                yield from _tracked(module, call)
        for run in runs_of(module, guarded):
            yield from _guard(module, run)


def _shared_folder(call: Call) -> Iterator[Finding]:
    given = call.keyword("exist_ok")
    if given is None and len(call.node.args) < 3:
        yield Change(SetArgument(call.node, "exist_ok", "True", MAY_EXIST))
    elif given is not None and isinstance(given.value, ast.Constant) and not given.value.value:
        yield Change(Replace(given.value, "True", MAY_EXIST))


def _only_writes(module: Module, statement: ast.stmt) -> bool:
    """`with open(path, "w") as file:`, if all that is done in it is to call functions of libraries."""
    nodes = [each for inner in getattr(statement, "body", ()) for each in ast.walk(inner)]
    plain = all(isinstance(each, (ast.Expr, ast.For)) for each in nodes if isinstance(each, ast.stmt))
    calls = inside(module, statement) if isinstance(statement, ast.With) and len(statement.items) == 1 else []
    own = (module.program.is_local(each.name) or each.method in module.program.methods for each in calls)
    return plain and bool(calls) and not any(own)


def _to_nowhere(module: Module, call: Call, path: ast.expr | None) -> Iterator[Finding]:
    words = words_of(module)
    if path is None or not call.name:
        yield remark(module, call.node, OPENS)
    else:
        yield _or_else(module, path, f"{words['os']}.devnull")


def _or_else(module: Module, node: ast.expr, other: str) -> Change:
    code = "({node})" if isinstance(node, (ast.IfExp, ast.Lambda)) else "{node}"
    code += f" if {words_of(module).is_rank0} else {other}"
    return Change(Replace(node, code, BECAUSE, {"node": node}))


def _tracked(module: Module, call: Call) -> Iterator[Finding]:
    words, kind, name = words_of(module), does(call.name), call.name or ""
    row, filename = row_of(module, call), call.argument(0 if kind is Does.HANDLE_LOG else None, "filename")
    if row is not None and row.does is Does.KEEP_STORE and not is_harmless(module, call, row):
        yield remark(module, call.node, STORE)
    elif kind is Does.HANDLE_LOG or name == "logging.basicConfig" and filename is not None:
        yield from _to_nowhere(module, call, filename)
    elif kind is Does.TRACK:
        yield from _elsewhere(module, call)
    elif name == "wandb.init" and call.keyword("mode") is None:
        code = f'"online" if {words.is_rank0} else "disabled"'
        yield Change(SetArgument(call.node, "mode", code, BECAUSE))
    elif name.endswith(RUNS) and name.startswith(tuple(f"{each}." for each in TRACKING)):
        yield remark(module, call.node, REPORTS)
    elif name.startswith("tqdm.") and name.endswith((".tqdm", ".trange")) and call.keyword("disable") is None:
        yield Change(SetArgument(call.node, "disable", f"{words.rank} != 0", "one bar"))


def _elsewhere(module: Module, call: Call) -> Iterator[Finding]:
    words, folder = words_of(module), call.argument(0, "log_dir") or call.argument(None, "logdir")
    elsewhere = f"{words['tempfile']}.mkdtemp()"
    if folder is not None:
        yield _or_else(module, folder, elsewhere)
    elif call.is_bare and not (call.name or "").startswith("visdom"):
        code = f"None if {words.is_rank0} else {elsewhere}"
        yield Change(SetArgument(call.node, "log_dir", code, BECAUSE))
    else:
        yield remark(module, call.node, REPORTS)


def _guard(module: Module, run: list[ast.stmt]) -> Iterator[Finding]:
    """Statements that follow each other come under one `if`: the one that is there, if nothing else is in it."""
    words, parent = words_of(module), module.parents[run[0]]
    if isinstance(parent, ast.If) and parent.body == run and not parent.orelse:
        code = "({test})" if isinstance(parent.test, LOOSE) else "{test}"
        test = {"test": parent.test}
        yield Change(Replace(parent.test, f"{code} and {words.is_rank0}", BECAUSE, test))
    else:
        yield Change(Guard(run[0], run[-1], words.is_rank0, BECAUSE))
    for call in (each for statement in run for each in inside(module, statement)):
        if last_name(call.node.func) in wrapped_names(module.program):
            why, model = "rank 0 alone runs it here, and so not through DDP", call.node.func
            yield Change(Replace(model, "{model}.module", why, {"model": model}))


def _saves_wrapper(module: Module, call: Call) -> bool:
    """`torch.save(net, path)`, also `torch.save({"net": net}, path)`."""
    given = call.argument(0, "obj")
    origins = module.program.flow.origins(module, given) if given is not None else ()
    whole = [given, *(origin for _, origin in origins)]
    values = [part for each in whole for part in (each.values if isinstance(each, ast.Dict) else [each])]
    return any(last_name(each) in wrapped_names(module.program) for each in values)
