"""Let rank 0 write.

Statements that only write (checkpoints, plots, copies, commands) go under `if rank == 0:`. `os.makedirs` gets
`exist_ok=True`, as every rank may make a folder. What opens a file, or a log handler, opens `os.devnull` on other
ranks; trackers write to a temporary folder there, and Weights & Biases is off.

Ranks that write one file at once tear it.

What a writing call returns would be missing on other ranks: there all ranks call it, and a comment says so; so of files
that are read as well, and of stores.

docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Guard, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp703_idiomatic_download import first_on_rank0
from dp2ddp.codemod.idiomatic.effects import is_folder, opening_mode, writes
from dp2ddp.codemod.idiomatic.looking import inside, runs_of
from dp2ddp.codemod.idiomatic.models import wrapped_names
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.looks.uses import is_harmless, row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.codemod.rule import Rule, Untouched, diff

BECAUSE = "rank 0 writes"
EACH_RANK = (
    "every rank does this: let rank 0 alone, and broadcast what comes of it; or each in a place of its own"
)
WRAPPER = "the wrapper itself, which is DDP's, and needs a process group to be loaded: save net.module"
MAY_EXIST = "every rank may make the folder"
LOOSE = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BoolOp)  # what `and` would tear
RUNS = ("init", "start_run", "Run", "Experiment")


class RankZeroWrites(Rule):
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
            statement, mode = module.statement(call.node), set(opening_mode(module, call))
            if does(call.name) is Does.SAVE and _saves_wrapper(module, call):
                yield remark(module, call.node, WRAPPER)
            if call.node in done:
                continue
            if is_folder(call):
                yield from _shared_folder(call)
            elif writes(module, call) and isinstance(statement, ast.Expr):
                guarded[statement] = None
            elif writes(module, call) or "+" in mode:
                yield remark(module, statement, EACH_RANK)
            elif mode & set("wax") and _only_writes(module, statement):
                guarded[statement] = None
            elif mode & set("wax"):
                yield _to_nowhere(module, call, call.argument(0, "file"))
            else:
                yield from _tracked(module, call)
        for run in runs_of(module, guarded):
            yield from _guard(module, run)


def _shared_folder(call: Call) -> Iterator[Finding]:
    given = call.keyword("exist_ok")
    if given is None and len(call.node.args) < 3:
        yield SetArgument(call.node, "exist_ok", "True", MAY_EXIST)
    elif given is not None and isinstance(given.value, ast.Constant) and not given.value.value:
        yield Replace(given.value, "True", MAY_EXIST)


def _only_writes(module: Module, statement: ast.stmt) -> bool:
    """`with open(path, "w") as file:`, if all that is done in it is to call functions of libraries."""
    if not isinstance(statement, ast.With) or len(statement.items) != 1:
        return False
    inner = (each for part in statement.body for each in ast.walk(part) if isinstance(each, ast.stmt))
    program, calls = module.program, inside(module, statement)
    own = any(program.is_local(each.name) or each.method in program.methods for each in calls)
    return all(isinstance(each, (ast.Expr, ast.For)) for each in inner) and not own


def _to_nowhere(module: Module, call: Call, path: ast.expr | None) -> Finding:
    if path is None or not call.name:
        return remark(module, call.node, EACH_RANK)
    return _or_else(module, path, f"{words_of(module)['os']}.devnull")


def _or_else(module: Module, node: ast.expr, other: str) -> Finding:
    code = "({node})" if isinstance(node, (ast.IfExp, ast.Lambda)) else "{node}"
    code += f" if {words_of(module).is_rank0} else {other}"
    return Replace(node, code, BECAUSE, {"node": node})


def _tracked(module: Module, call: Call) -> Iterator[Finding]:
    words, kind, name = words_of(module), does(call.name), call.name or ""
    row, filename = row_of(module, call), call.argument(0 if kind is Does.HANDLE_LOG else None, "filename")
    if row is not None and row.does is Does.KEEP_STORE and not is_harmless(module, call, row):
        yield remark(module, call.node, EACH_RANK)
    elif kind is Does.HANDLE_LOG or name == "logging.basicConfig" and filename is not None:
        yield _to_nowhere(module, call, filename)
    elif kind is Does.TRACK:
        yield _elsewhere(module, call)
    elif name == "wandb.init" and call.keyword("mode") is None:
        code = f'"online" if {words.is_rank0} else "disabled"'
        yield SetArgument(call.node, "mode", code, BECAUSE)
    elif name.endswith(RUNS) and name.partition(".")[0] in TRACKING:
        yield remark(module, call.node, EACH_RANK)
    elif name.startswith("tqdm.") and name.endswith((".tqdm", ".trange")) and call.keyword("disable") is None:
        yield SetArgument(call.node, "disable", f"{words.rank} != 0", "one bar")


def _elsewhere(module: Module, call: Call) -> Finding:
    words, folder = words_of(module), call.argument(0, "log_dir") or call.argument(None, "logdir")
    elsewhere = f"{words['tempfile']}.mkdtemp()"
    if folder is not None:
        return _or_else(module, folder, elsewhere)
    if call.is_bare and not (call.name or "").startswith("visdom"):
        return SetArgument(call.node, "log_dir", f"None if {words.is_rank0} else {elsewhere}", BECAUSE)
    return remark(module, call.node, EACH_RANK)


def _guard(module: Module, run: list[ast.stmt]) -> Iterator[Finding]:
    """Statements that follow each other come under one `if`: the one that is there, if nothing else is in it."""
    words, parent = words_of(module), module.parents[run[0]]
    if isinstance(parent, ast.If) and parent.body == run and not parent.orelse:
        code = "({test})" if isinstance(parent.test, LOOSE) else "{test}"
        yield Replace(parent.test, f"{code} and {words.is_rank0}", BECAUSE, {"test": parent.test})
    else:
        yield Guard(run[0], run[-1], words.is_rank0, BECAUSE)
    for model in (call.node.func for statement in run for call in inside(module, statement)):
        if last_name(model) in wrapped_names(module.program):
            why = "rank 0 alone runs it here, and so not through DDP"
            yield Replace(model, "{model}.module", why, {"model": model})


def _saves_wrapper(module: Module, call: Call) -> bool:
    """`torch.save(net, path)`, also `torch.save({"net": net}, path)`."""
    given = call.argument(0, "obj")
    whole = [origin for _, origin in module.program.flow.origins(module, given)] if given is not None else []
    values = (part for each in whole for part in (each.values if isinstance(each, ast.Dict) else [each]))
    return any(last_name(each) in wrapped_names(module.program) for each in (given, *values))
