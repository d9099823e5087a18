"""DDP703: what rank 0 does first, and the others find done."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from dp2ddp.codemod.edits import InsertAfter, InsertBefore
from dp2ddp.codemod.idiomatic.effects import asks_for_absence, is_download, may_write, writing_functions
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark, words_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched

LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Yield)


class Rank0First(IdiomaticRule):
    """Let rank 0 download and prepare files before the others look for them.

    ## What it does
    Around what downloads, and around `if not os.path.exists(path):` with what makes the file, ranks other than 0 wait
    at a barrier until rank 0 has been there; then they find everything done.

    ## Why
    Ranks that write one file at once tear it.

    ## Safety
    All ranks must come to it, as they do in a script that is the same on each.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP703"
    name = "idiomatic-download"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                import torch
                import torch.distributed as dist
                train = CIFAR10("data", train=True, download=True)
                test = CIFAR10("data", train=False, download=True)
            """,
            after="""
                import torch
                import torch.distributed as dist
                if rank != 0:
                    dist.barrier()  # rank 0 downloads first
                train = CIFAR10("data", train=True, download=True)
                test = CIFAR10("data", train=False, download=True)
                if rank == 0:
                    dist.barrier()
            """,
        ),
        Untouched('train = CIFAR10("data", train=True, download=False)'),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        words = words_of(module)
        for run, why in _runs(module):
            if any(isinstance(each, LEAVING) for statement in run for each in _walked(statement)):
                yield remark(
                    module,
                    run[0],
                    "let rank 0 do this first: a barrier before it on the others, behind it on rank 0",
                )
                continue
            before = f"if {words.rank} != 0:\n    {words['dist']}.barrier()  # rank 0 {why} first"
            after = f"if {words.is_rank0}:\n    {words['dist']}.barrier()"
            yield Change(InsertBefore(run[0], before, f"rank 0 {why} first", apart=False), ("dist",))
            yield Change(InsertAfter(run[-1], after, f"rank 0 {why} first"), ("dist",))


def first_on_rank0(module: Module) -> set[ast.AST]:
    """The statements that rank 0 runs before the others, and all in them."""
    return {node for run, _ in _runs(module) for statement in run for node in ast.walk(statement)}


def _runs(module: Module) -> Iterator[tuple[list[ast.stmt], str]]:
    """Statements that follow each other, and what rank 0 does in them."""
    first: dict[ast.stmt, str] = {}
    for call in module.calls:
        if is_download(call) and not _is_handed_on(module, call):
            first[module.statement(call.node)] = "downloads"
    functions = writing_functions(module.program)
    for test in module.all(ast.If):
        inside = {each for statement in test.body for each in ast.walk(statement)}
        calls = [call for call in module.calls if call.node in inside and may_write(module, call, functions)]
        words = {last_word(each) for each in ast.walk(test.test)}
        if (
            asks_for_absence(test.test)
            and "download" not in words
            and any(not _makes_folder(call) for call in calls)
        ):
            first.setdefault(test, "writes")
    statements = {node: why for node, why in first.items() if not _holds_another(module, node, first)}
    blocks: dict[int, list[ast.stmt]] = {}
    for node in statements:
        blocks.setdefault(id(module.parents[node]), []).append(node)
    for block in blocks.values():
        run = [block[0]]
        for before, behind in pairwise(block):
            if _follows(module, before, behind) and statements[before] == statements[behind]:
                run.append(behind)
            else:
                yield run, statements[run[0]]
                run = [behind]
        yield run, statements[run[0]]


def _holds_another(module: Module, node: ast.stmt, first: dict[ast.stmt, str]) -> bool:
    """Whether it stands inside of another one."""
    return any(each in first for each in module.around(node))


def _is_handed_on(module: Module, call: Call) -> bool:
    """Whether it is `super().__init__(download=download)` or stands in an expression that is not run here."""
    function = next((each for each in module.around(call.node) if isinstance(each, FUNCTIONS)), None)
    given = call.keyword("download")
    return isinstance(function, ast.Lambda) or bool(given and isinstance(given.value, ast.Name) and function)


def _makes_folder(call: Call) -> bool:
    return (call.name or "") == "os.makedirs" or call.method == "mkdir"


def _follows(module: Module, before: ast.stmt, behind: ast.stmt) -> bool:
    parent = module.parents[before]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, [])
        if before in block and behind in block:
            return bool(block.index(behind) == block.index(before) + 1)
    return False


def _walked(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without functions inside it."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        pending += [each for each in ast.iter_child_nodes(node) if not isinstance(each, FUNCTIONS)]
