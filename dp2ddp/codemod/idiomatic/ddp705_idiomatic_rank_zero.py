"""Let rank 0 write.

Statements that only write (checkpoints, plots, copies, commands) go under `if rank == 0:`. `os.makedirs` gets
`exist_ok=True`, as every rank may make a folder. What opens a file, or a log handler, opens `os.devnull` on other
ranks; trackers write to a temporary folder there, and Weights & Biases is off.

Ranks that write one file at once tear it.

What a writing call returns would be missing on other ranks: there all ranks call it, and a comment says so; so of files
that are read as well, of modes that the text does not tell, and of stores.

docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Guard, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp703_idiomatic_download import first_on_rank0
from dp2ddp.codemod.idiomatic.effects import DOWNLOADS, OPENS, WRITES, effects, findings, is_folder, mode_of
from dp2ddp.codemod.idiomatic.looking import inside, runs_of
from dp2ddp.codemod.idiomatic.models import wrapped_names
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.looks.uses import is_used
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
LOGS = ("SummaryWriter", "FileWriter")  # of tensorboard: they write into a folder


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
        yield from (each for each in findings(module) if isinstance(each, Replace) and not each.helpers)
        first, acts = first_on_rank0(module), effects(module)
        guarded: set[ast.AST] = set()
        for call in module.calls:
            helper = None if call.node in first else acts.get(call.node)
            if does(call.name) is Does.SAVE and _saves_wrapper(module, call):
                yield remark(module, call.node, WRAPPER)
            if helper is None or helper in DOWNLOADS:
                yield from _reported(module, call)
            elif is_folder(call):
                yield from _shared_folder(call)
            elif _is_all(module, call, helper):
                guarded.add(module.statement(call.node))
            else:
                yield _elsewhere(module, call, helper)
        outermost = {each for each in guarded if not any(around in guarded for around in module.around(each))}
        for run in runs_of(module, outermost):
            yield from _guard(module, run)


def _shared_folder(call: Call) -> Iterator[Finding]:
    given = call.keyword("exist_ok")
    if given is None and len(call.node.args) < 3:
        yield SetArgument(call.node, "exist_ok", "True", MAY_EXIST)
    elif given is not None and isinstance(given.value, ast.Constant) and not given.value.value:
        yield Replace(given.value, "True", MAY_EXIST)


def _is_all(module: Module, call: Call, helper: str) -> bool:
    """Whether writing is all that a statement does: `with open(path, "w") as file:` with what is written, too."""
    statement = module.statement(call.node)
    if helper not in OPENS:
        return helper in WRITES and not is_used(module, call)
    if not _only_writes(call) or _calls_own(module, statement):
        return False
    match statement:
        case ast.Expr(value=ast.Call(func=func)):  # `json.dump(rows, open(path, "w"))`
            return module.name(func) is not None or call.node in ast.walk(func)
        case ast.With(items=[_], body=body):
            inner = (each for part in body for each in ast.walk(part) if isinstance(each, ast.stmt))
            return all(isinstance(each, (ast.Expr, ast.For)) for each in inner)
    return False


def _only_writes(call: Call) -> bool:
    """Whether what it opens is written, and not read as well."""
    return bool(mode := mode_of(call)) and "+" not in mode


def _calls_own(module: Module, statement: ast.stmt) -> bool:
    """Whether functions of the program run in a statement."""
    program, calls = module.program, inside(module, statement)
    return any(program.is_local(each.name) or each.method in program.methods for each in calls)


def _elsewhere(module: Module, call: Call, helper: str) -> Finding:
    """What other ranks write goes nowhere, or into a folder of their own; else a person decides."""
    words, path = words_of(module), call.argument(0, "file") or call.argument(None, "filename")
    folder = path or call.argument(None, "log_dir") or call.argument(None, "logdir")
    is_plain = helper in OPENS and _only_writes(call) and call.name is not None
    if path is not None and (is_plain or does(call.name) is Does.HANDLE_LOG):
        return _or_else(module, path, f"{words['os']}.devnull")
    if last_name(call.node.func) in LOGS and folder is not None:
        return _or_else(module, folder, f"{words['tempfile']}.mkdtemp()")
    if last_name(call.node.func) in LOGS and call.is_bare:
        code = f"None if {words.is_rank0} else {words['tempfile']}.mkdtemp()"
        return SetArgument(call.node, "log_dir", code, BECAUSE)
    return remark(module, call.node, EACH_RANK)


def _or_else(module: Module, node: ast.expr, other: str) -> Finding:
    code = "({node})" if isinstance(node, (ast.IfExp, ast.Lambda)) else "{node}"
    code += f" if {words_of(module).is_rank0} else {other}"
    return Replace(node, code, BECAUSE, {"node": node})


def _reported(module: Module, call: Call) -> Iterator[Finding]:
    """Runs of trackers, and bars."""
    words, name = words_of(module), call.name or ""
    if name == "wandb.init" and call.keyword("mode") is None:
        code = f'"online" if {words.is_rank0} else "disabled"'
        yield SetArgument(call.node, "mode", code, BECAUSE)
    elif name.endswith(RUNS) and name.partition(".")[0] in TRACKING:
        yield remark(module, call.node, EACH_RANK)
    elif name.startswith("tqdm.") and name.endswith((".tqdm", ".trange")) and call.keyword("disable") is None:
        yield SetArgument(call.node, "disable", f"{words.rank} != 0", "one bar")


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
