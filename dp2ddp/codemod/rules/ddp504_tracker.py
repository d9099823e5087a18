"""Report a run once.

`SummaryWriter(path)` becomes `make_on_rank0(SummaryWriter, path)`; under `import wandb` comes
`wandb = library_on_rank0(wandb)`: on other ranks calls of these do nothing. Where something is read of a library
(`wandb.config.lr`), it is `HeldByRank0(wandb)`: each use is asked of rank 0's. So it is where a module is fetched by
its name, or by one that is found out at run time (`held_if_it_reports(import_module(name))`). The same for log files
of `logging`, classes of the program that are derived from such, and writers of libraries (`cv2.VideoWriter`).

Every rank would report a run of its own.

Lines that log stay as they are. What is read of an object that rank 0 alone has ends the run on the others. A
hazard for what starts the training itself (`wandb.agent`), and for a class of the program whose methods, on rank 0
alone, would do what all ranks meet for.

docs/semantics.md#trackers.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, Hazard, InsertAfter, Replace
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does, what_is
from dp2ddp.codemod.knowledge.methods import WRITING_CLASS, MethodDoes, method
from dp2ddp.codemod.looks.looked_up import module_names
from dp2ddp.codemod.looks.mentions import handed_to
from dp2ddp.codemod.looks.start import last_import
from dp2ddp.codemod.looks.uses import base_in_library, is_harmless, is_only_written, row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags

HELPERS = {Does.TRACK: "make_on_rank0", Does.HANDLE_LOG: "make_handler_on_rank0"}
MEETS = (Does.WRITE, Does.SAVE, Does.ANSWER, Does.OPEN)  # where all ranks meet
BECAUSE = "rank 0 alone keeps the log"
STARTS = Reason(
    "starts-training", "{name} starts the training itself", "start each run by a command of its own"
)
STARRED = Reason("tracker-starred", "`import *` says nothing of what {home} reports", "import it by its name")
OF_ONE = Reason(
    "object-of-rank0",
    "{name} in a method of {owner}, which rank 0 alone may have, or call by its levels",
    "do it outside of the class",
)


class Tracker(Rule):
    examples = (
        diff("""
              import logging
              import wandb
              from torch.utils.tensorboard import SummaryWriter
            + wandb = library_on_rank0(wandb)
            - writer = SummaryWriter("runs")
            - logger.addHandler(logging.FileHandler("run.log"))
            + writer = make_on_rank0(SummaryWriter, "runs")
            + logger.addHandler(make_handler_on_rank0(logging.FileHandler, "run.log"))
              run = wandb.init(config=args)
        """),
        diff("""
              import wandb
            + wandb = HeldByRank0(wandb)
              optimizer = SGD(parameters, lr=wandb.config.lr)
        """),
        flags("""
            # wandb.agent starts the training itself
            import wandb
            wandb.agent('sweep', function=train)
        """),
        Untouched("writer.add_scalar('loss', 1.0, 0)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            yield from _made(module, call)
        yield from handed_to(module, HELPERS, BECAUSE)
        for node in module.nodes(ast.Call, ast.Subscript):
            yield from _fetched(module, node)  # type: ignore[arg-type]
        for node in module.all(ast.ImportFrom):
            home = module.home_of(node)
            if node.names[0].name == "*" and _reports(module, home):
                yield Hazard(node, STARRED.of(home=home))
        for name, bindings in module.all_bindings.items():
            nodes = (each.node for each in bindings if _reports(module, each.dotted))
            yield from (_tracked(module, name, node) for node in nodes)  # type: ignore[arg-type]
        yield from _meetings_of_one(module)


def _made(module: Module, call: Call) -> Iterator[Finding]:
    row = row_of(module, call)
    kind = row.does if row else None
    if kind is Does.START_TRAINING:
        yield Hazard(call.node, STARTS.of(name=call.name))
    elif row and kind in HELPERS and not is_harmless(module, call, row):
        yield call_by(call.node, HELPERS[kind], BECAUSE)
    elif row is None and not call.is_bare and _makes_writer(module, call):
        yield call_by(call.node, "make_on_rank0", BECAUSE)


def _makes_writer(module: Module, call: Call) -> bool:
    """By its name: `import_module(x).SummaryWriter(...)`, `lib.FFmpegWriter(path)`."""
    if call.name is None:
        return method(call.method) is MethodDoes.TRACK
    is_of_library = not module.program.is_local(call.name) and call.name.partition(".")[0] not in TRACKING
    return is_of_library and bool(WRITING_CLASS.fullmatch(call.name))


def _reports(module: Module, dotted: str) -> bool:
    return dotted.partition(".")[0] in TRACKING and not module.program.is_local(dotted)


def _fetched(module: Module, node: ast.Call | ast.Subscript) -> Iterator[Finding]:
    """A library that reports, fetched by its name: `import_module("wandb")`, `sys.modules["wandb"].log`."""
    key = module.module_key(node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else None
    reports = [_reports(module, text) for text in module_names(module, key)] if key is not None else [False]
    if any(reports) or not reports and _are_named(module.program):
        code, helpers = "held_if_it_reports({it})", ("held_if_it_reports",)
        yield Replace(node, code, BECAUSE, {"it": node}, helpers=helpers)


@lru_cache(maxsize=1)
def _are_named(program: Program) -> bool:
    """Whether a text of the program is the name of a library that reports: `choices=["wandb", "json"]`."""
    texts = (each.value for module in program.modules for each in module.all(ast.Constant))
    return any(isinstance(text, str) and text.partition(".")[0] in TRACKING for text in texts)


def _is_read(module: Module, name: str) -> bool:
    """Whether anything is looked at of what comes of a library that goes by this name."""
    names = (each for each in module.by_word.get(name, ()) if isinstance(each, ast.Name))
    return not all(_is_only_written(module, each) for each in names if isinstance(each.ctx, ast.Load))


def _tracked(module: Module, name: str, node: ast.stmt) -> Finding:
    """A library that reports, by the name that an import gives it; one that may fail is held where it stands."""
    helper = "HeldByRank0" if _is_read(module, name) else "library_on_rank0"
    last = last_import(module, {module.top_statement(use) for use in module.by_word.get(name, ())}) or node
    place = last if last.lineno > node.lineno and module.parents[node] is module.tree else node
    return InsertAfter(place, f"{name} = {helper}({name})", BECAUSE, helpers=(helper,))


def _is_only_written(module: Module, use: ast.Name) -> bool:
    """Whether nothing that comes of this use of a library is looked at, but by the library itself."""
    if is_only_written(module, use) or isinstance(module.parents[use], ast.Compare):  # `wandb is None`
        return True
    statement = module.statement(use)
    called = statement.value if isinstance(statement, ast.Expr) else None
    while isinstance(called, (ast.Call, ast.Attribute)):
        called = called.func if isinstance(called, ast.Call) else called.value
    return isinstance(called, ast.Name) and called.id == use.id


def _meetings_of_one(module: Module) -> Iterator[Finding]:
    """What all ranks meet for, in a method of a class of which rank 0 alone has objects, or is called by its level."""
    for call in module.calls:
        row, owner = what_is(call.name), module.enclosing(call.node, ast.ClassDef)
        if row and owner and row.does in MEETS and not is_harmless(module, call, row):
            base = base_in_library(module, f"{module.dotted}.{owner.name}") or ""
            if does(base) in HELPERS or base.startswith("logging."):
                yield Hazard(call.node, OF_ONE.of(name=call.name, owner=owner.name))
