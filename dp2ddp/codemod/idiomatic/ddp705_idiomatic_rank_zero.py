"""Let rank 0 write, and before the others read.

Statements that only write (checkpoints, plots, copies, commands) go under `if rank == 0:`. `os.makedirs` gets
`exist_ok=True`, as every rank may make a folder. What opens a file, or a log handler, opens `os.devnull` on other
ranks; TensorBoard's writers get a temporary folder there, and bars are not drawn. Around what downloads, and around
`if not os.path.exists(path):` with what makes the file, ranks other than 0 wait at a barrier until rank 0 has been
there. What is read after rank 0 may have written (a best checkpoint behind the training) is waited for.

Ranks that write one file at once tear it; ranks that read too early read the file of an earlier run.

All ranks must come to a barrier, as they do in a script that is the same on each. What a writing call returns would be
missing on other ranks: there all ranks call it, and a comment says so; so of files that are read as well, of modes
that the text does not tell, and of stores.

docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from dp2ddp.codemod.edits import Finding, Guard, Hazard, InsertAfter, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp702_idiomatic_wrap import wrapped_names
from dp2ddp.codemod.idiomatic.looking import leading_to, runs_of, words_in
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.knowledge.methods import WRITING_MODE
from dp2ddp.codemod.looks.uses import is_used, may_be_true
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import DEFINITIONS, FUNCTIONS, LOOPS, all_from, inside, last_name, values_of
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, diff
from dp2ddp.codemod.rules.ddp301_download import Download
from dp2ddp.codemod.rules.ddp501_file_open import FileOpen
from dp2ddp.codemod.rules.ddp503_file_system import FileSystem
from dp2ddp.codemod.rules.ddp504_tracker import Tracker

# The exact style's rules find what acts outside; its helpers say in what way.
RULES = (Tracker(), FileSystem(), FileOpen(), Download())
DOWNLOADS = "rank0_first"
OPENS = ("open_on_rank0", "open_by_on_rank0", "open_path_on_rank0")
WRITES = ("run_on_rank0", "write_on_rank0", "save_on_rank0", "ask_rank0", "hold_on_rank0")
MAKES = ("make_on_rank0", "make_handler_on_rank0")
READERS = (
    *("os.listdir", "os.walk", "os.scandir", "glob.glob", "numpy.load", "torch.load", "pandas.read_csv"),
    *("subprocess.check_output", "subprocess.getoutput", "os.popen"),
)
READING_METHODS = ("read_text", "read_bytes", "iterdir")
ASKS_FILES = {"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"}
LOOSE = (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BoolOp)  # what `and` would tear
RUNS = ("init", "start_run", "Run", "Experiment")
LOGS = ("SummaryWriter", "FileWriter")  # of tensorboard: they write into a folder

BECAUSE = "rank 0 writes"
EACH_RANK = (
    "every rank does this: let rank 0 alone, and broadcast what comes of it; or each in a place of its own"
)
MAY_EXIST = "every rank may make the folder"
GOES_FIRST = "rank 0 goes first"
HAS_WRITTEN = "rank 0 has written"


class RankZeroWrites(Rule):
    examples = (
        diff("""
              import os
              import torch
              import torch.distributed as dist
            + if rank != 0:
            +     dist.barrier()  # rank 0 goes first
              train = CIFAR10("data", train=True, download=True)
              test = CIFAR10("data", train=False, download=True)
            + if rank == 0:
            +     dist.barrier()
            - os.makedirs("out")
            - torch.save(net.state_dict(), "out/net.pt")
            - torch.save(optimizer.state_dict(), "out/optimizer.pt")
            - log = open("out/log.txt", "w")
            + os.makedirs("out", exist_ok=True)
            + if rank == 0:
            +     torch.save(net.state_dict(), "out/net.pt")
            +     torch.save(optimizer.state_dict(), "out/optimizer.pt")
            + log = open("out/log.txt" if rank == 0 else os.devnull, "w")
            + dist.barrier()  # rank 0 has written
              net.load_state_dict(torch.load("out/net.pt"))
        """),
        Untouched('lines = open("names.txt").read()\ntrain = CIFAR10("data", train=True, download=False)'),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from _barriers(module)
        guarded: set[ast.AST] = set()
        for call in module.calls:
            helper = None if _stands_first(module, call.node) else _effects(module).get(call.node)
            if helper is None or helper == DOWNLOADS:
                yield from _reported(module, call)
            elif _is_folder(call):
                if call.keyword("exist_ok") is None and len(call.node.args) < 3:
                    yield SetArgument(call.node, "exist_ok", "True", MAY_EXIST)
            elif _is_all(module, call, helper):
                guarded.add(module.statement(call.node))
            else:
                yield _elsewhere(module, call, helper)
        outermost = {each for each in guarded if guarded.isdisjoint(module.around(each))}
        for run in runs_of(module, outermost):
            yield from _guard(module, run)


# --- what acts outside


@lru_cache(maxsize=1000)
def _effects(module: Module) -> dict[ast.AST, str]:
    """The calls that act outside, each with the helper that the exact style calls there; "" where a person decides."""
    acting: dict[ast.AST, str] = {}
    for finding in (finding for rule in RULES for finding in rule.look(module)):
        called = module.call_of(finding.node)
        call = called.node if called else finding.node
        helper = next(iter(getattr(finding, "helpers", ())), "")
        is_known = helper in (DOWNLOADS, *OPENS, *WRITES, *MAKES) or isinstance(finding, Hazard)
        if isinstance(call, ast.Call) and is_known and not _stays_inside(module, call):
            acting[call] = helper
    return acting


def _stays_inside(module: Module, node: ast.Call) -> bool:
    """Whether a call only reads, or writes into memory: `image.save(buffer)`."""
    origins = (each for given in node.args for each in module.program.flow.origins(module, given))
    made = {home.name(each.func) for home, each in origins if isinstance(each, ast.Call)}
    return _reads(module.call(node)) or not made.isdisjoint(("io.BytesIO", "io.StringIO"))


def _only_writes(call: Call) -> bool:
    """Whether what it opens is written, and not read as well, as far as the text tells."""
    given = values_of(call.node)
    given += [part for each in given if isinstance(each, ast.IfExp) for part in (each.body, each.orelse)]
    modes = [mode for each in given if WRITING_MODE.fullmatch(mode := str(getattr(each, "value", "")))]
    return bool(modes) and "+" not in "".join(modes)


def _reads(call: Call) -> bool:
    """Whether a call reads files or looks for them."""
    hears = call.name == "subprocess.run" and any(map(call.keyword, ("stdout", "capture_output")))
    is_open = call.name == "builtins.open" and call.argument(1, "mode") is None
    return call.name in READERS or call.method in READING_METHODS or hears or is_open


def _is_folder(call: Call) -> bool:
    """Whether it makes a folder in a way that may find it there."""
    return call.name in ("os.makedirs", "pathlib.Path.mkdir") or call.name is None and call.method == "mkdir"


def _is_download(module: Module, call: Call) -> bool:
    """`CIFAR10(root, download=True)`, `torch.hub.load(...)`."""
    given = call.keyword("download")
    return may_be_true(given.value) if given is not None else _effects(module).get(call.node) == DOWNLOADS


@lru_cache(maxsize=8)
def _leading_to_writing(program: Program) -> frozenset[ast.AST]:
    """The calls that write, and those that lead to one; not those that make a folder."""
    return leading_to((module, call) for module, call in program.calls if _writes(module, call))


def _writes(module: Module, call: Call) -> bool:
    makes_folder = _is_folder(call) or call.name == "os.mkdir"
    acts = _effects(module).get(call.node) in (*OPENS, *WRITES)
    return acts and not makes_folder or _is_download(module, call)


# --- what rank 0 alone writes


def _is_all(module: Module, call: Call, helper: str) -> bool:
    """Whether writing is all that a statement does: `with open(path, "w") as file:` with what is written, too."""
    statement, program = module.statement(call.node), module.program
    if helper not in OPENS:
        return helper in WRITES and not is_used(module, call)
    others = module.calls_in(statement)
    calls_own = any(program.is_local(each.name) or each.method in program.methods for each in others)
    if calls_own or not _only_writes(call):
        return False
    match statement:
        case ast.Expr(value=ast.Call(func=func)):  # `json.dump(rows, open(path, "w"))`
            return module.name(func) is not None or call.node in ast.walk(func)
        case ast.With(items=[_], body=body):
            inner = (each for part in body for each in inside(part, ast.stmt))
            return all(isinstance(each, (ast.Expr, ast.For)) for each in inner)
    return False


def _elsewhere(module: Module, call: Call, helper: str) -> Finding:
    """What other ranks write goes nowhere, or into a folder of their own; else a person decides."""
    words, path = words_of(module), call.argument(0, "file") or call.argument(None, "filename")
    folder = path or call.argument(None, "log_dir") or call.argument(None, "logdir")
    is_plain = helper in OPENS and _only_writes(call) and call.name is not None
    if path is not None and (is_plain or does(call.name) is Does.HANDLE_LOG):
        return _or_else(module, path, words.code("{os}.devnull"))
    if last_name(call.node.func) in LOGS and folder is not None:
        return _or_else(module, folder, words.code("{tempfile}.mkdtemp()"))
    return remark(module, call.node, EACH_RANK)


def _or_else(module: Module, node: ast.expr, other: str) -> Finding:
    code = "({node})" if isinstance(node, (ast.IfExp, ast.Lambda)) else "{node}"
    return Replace(node, f"{code} if {words_of(module)['rank']} == 0 else {other}", BECAUSE, {"node": node})


def _reported(module: Module, call: Call) -> Iterator[Finding]:
    """Runs of trackers, and bars."""
    words, name = words_of(module), call.name or ""
    if name.endswith(RUNS) and name.partition(".")[0] in TRACKING:
        yield remark(module, call.node, EACH_RANK)
    elif name.startswith("tqdm.") and name.endswith((".tqdm", ".trange")) and call.keyword("disable") is None:
        yield SetArgument(call.node, "disable", words.code("{rank} != 0"), "one bar")


def _guard(module: Module, run: list[ast.stmt]) -> Iterator[Finding]:
    """Statements that follow each other come under one `if`: the one that is there, if nothing else is in it."""
    is_rank0, parent = words_of(module).code("{rank} == 0"), module.parents[run[0]]
    if isinstance(parent, ast.If) and parent.body == run and not parent.orelse:
        code = "({test})" if isinstance(parent.test, LOOSE) else "{test}"
        yield Replace(parent.test, f"{code} and {is_rank0}", BECAUSE, {"test": parent.test})
    else:
        yield Guard(run[0], run[-1], is_rank0, BECAUSE)
    for model in (call.func for statement in run for call in inside(statement, ast.Call)):
        if last_name(model) in wrapped_names(module.program):
            why = "rank 0 alone runs it here, and so not through DDP"
            yield Replace(model, "{model}.module", why, {"model": model})


# --- what rank 0 does before the others


def _barriers(module: Module) -> Iterator[Finding]:
    words = words_of(module)
    alone = {each for each in _candidates(module) if not _is_first(module, module.parents[each])}
    for run in runs_of(module, alone):
        waiting = words.code(f"if {{rank}} != 0:\n    {{dist}}.barrier()  # {GOES_FIRST}")
        yield InsertBefore(run[0], waiting, GOES_FIRST, apart=False)
        yield InsertAfter(run[-1], words.code("if {rank} == 0:\n    {dist}.barrier()"), GOES_FIRST)
    readers = (call.node for call in module.calls if _reads(call) and not _is_first(module, call.node))
    late = (_question_or_read(module, node) for node in readers if _may_follow(module, node))
    for statement in dict.fromkeys(late):
        yield InsertBefore(
            statement, words.code(f"{{dist}}.barrier()  # {HAS_WRITTEN}"), HAS_WRITTEN, apart=False
        )


@lru_cache(maxsize=1000)
def _candidates(module: Module) -> frozenset[ast.stmt]:
    """The statements that download, or make what is not there."""
    downloads = {module.statement(call.node) for call in module.calls if _is_download(module, call)}
    denials = (each for each in module.all(ast.If) if _asks_files(each) and any(inside(each.test, ast.Not)))
    writing = _leading_to_writing(module.program)
    made = {
        each
        for each in denials
        if any(call in writing for part in each.body for call in inside(part, ast.Call))
    }
    return frozenset(downloads | made)


def _asks_files(choice: ast.AST) -> bool:
    return isinstance(choice, ast.If) and not ASKS_FILES.isdisjoint(words_in(choice.test))


def _stands_first(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in such a statement, or in a function that takes `download`: its callers wait."""
    return any(
        each in _candidates(module)
        or isinstance(each, ast.FunctionDef)
        and "download" in [given.arg for given in each.args.args]
        for each in (node, *module.around(node))
    )


def _is_first(module: Module, node: ast.AST) -> bool:
    """Whether rank 0 comes to a place before the others, who wait meanwhile: no place for a barrier."""
    called, around = _called_first(module.program), (node, *module.around(node))
    return _stands_first(module, node) or any(getattr(each, "name", "") in called for each in around)


@lru_cache(maxsize=8)
def _called_first(program: Program) -> frozenset[str]:
    """The names of functions that such statements call."""
    statements = (each for module in program.modules for each in _candidates(module))
    return frozenset(last_name(call.func) for each in statements for call in inside(each, ast.Call))


def _may_follow(module: Module, call: ast.AST) -> bool:
    """Whether rank 0 may have written before: above a call, in a loop around it, or before its function is called."""
    return any(_is_behind_writing(*place) for place in all_from([(module, call)], _callers))


def _callers(place: tuple[Module, ast.AST]) -> Iterator[tuple[Module, ast.AST]]:
    module, node = place
    function = module.enclosing(node, ast.FunctionDef)
    if function is not None:
        owner = module.parents[function] if function.name == "__init__" else function
        yield from ((home, call.node) for home, call in module.program.calls_of(module, owner))


@lru_cache(maxsize=10000)
def _is_behind_writing(module: Module, node: ast.AST) -> bool:
    before: list[ast.AST] = []
    for parent, inner in module.steps(node):
        if isinstance(inner, DEFINITIONS):
            break
        if isinstance(parent, LOOPS):
            before.append(parent)
        elif isinstance(inner, ast.stmt):
            before += [each for each in module.block_of(inner) if each.lineno < inner.lineno]
    runs = (each for each in before if not isinstance(each, DEFINITIONS))
    calls = {call for each in runs for call in inside(each, ast.Call) if not _is_first(module, call)}
    return not calls.isdisjoint(_leading_to_writing(module.program))


def _question_or_read(module: Module, node: ast.AST) -> ast.stmt:
    """The statement that reads, or the `if os.path.exists(path):` around it: all ranks must come to the barrier."""
    statement = module.statement(node)
    within = takewhile(lambda each: not isinstance(each, FUNCTIONS), module.around(statement))
    return [statement, *filter(_asks_files, within)][-1]  # type: ignore[return-value]  # an `if` is one
