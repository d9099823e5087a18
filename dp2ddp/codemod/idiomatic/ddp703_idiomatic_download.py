"""Let rank 0 write files before the others read them.

Around what downloads, and around `if not os.path.exists(path):` with what makes the file, ranks other than 0 wait
at a barrier until rank 0 has been there; then they find everything done. What is read after rank 0 may have written
(a best checkpoint behind the training) is waited for.

Ranks that write one file at once tear it; ranks that read too early read the file of an earlier run.

All ranks must come to it, as they do in a script that is the same on each.

docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from dp2ddp.codemod.edits import Finding, InsertAfter, InsertBefore
from dp2ddp.codemod.idiomatic.effects import is_download, leading_to_writing, reads
from dp2ddp.codemod.idiomatic.looking import inside, runs_of, words_in
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import DEFINITIONS, FUNCTIONS, LOOPS, all_from, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, diff

LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Yield)
ASKS_FILES = {"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"}
HAS_WRITTEN = "rank 0 has written"
BY_HAND = "let rank 0 do this first: a barrier before it on the others, behind it on rank 0"


class Rank0First(Rule):
    nodes = ("BaseStatement",)
    examples = (
        diff("""
              import torch
              import torch.distributed as dist
            + if rank != 0:
            +     dist.barrier()  # rank 0 downloads first
              train = CIFAR10("data", train=True, download=True)
              test = CIFAR10("data", train=False, download=True)
            + if rank == 0:
            +     dist.barrier()
              torch.save(net.state_dict(), "net.pt")
            + dist.barrier()  # rank 0 has written
              net.load_state_dict(torch.load("net.pt"))
        """),
        Untouched('train = CIFAR10("data", train=True, download=False)'),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        words, done = words_of(module), _done_first(module)
        for run in runs_of(module, done):
            if any(isinstance(each, LEAVING) for statement in run for each in ast.walk(statement)):
                yield remark(module, run[0], BY_HAND)
                continue
            why = f"rank 0 {done[run[0]]} first"
            before = f"if {words.rank} != 0:\n    {words['dist']}.barrier()  # {why}"
            after = f"if {words.is_rank0}:\n    {words['dist']}.barrier()"
            yield InsertBefore(run[0], before, why, apart=False)
            yield InsertAfter(run[-1], after, why)
        readers = (call for call in module.calls if reads(call) and not _is_first(module, call.node))
        late = (_question_or_read(module, each.node) for each in readers if _may_follow(module, each))
        waits = f"{words['dist']}.barrier()  # {HAS_WRITTEN}"
        for statement in dict.fromkeys(late):
            yield InsertBefore(statement, waits, HAS_WRITTEN, apart=False)


@lru_cache(maxsize=1000)
def first_on_rank0(module: Module) -> frozenset[ast.AST]:
    """All in the statements that rank 0 runs before the others, and in functions that take `download`."""
    functions = (each for each in module.all(ast.FunctionDef) if _takes_download(each))
    return frozenset(node for each in (*_done_first(module), *functions) for node in ast.walk(each))


def _takes_download(node: ast.AST) -> bool:
    """`def __init__(self, root, download=False)`: its callers let rank 0 run it first."""
    return isinstance(node, ast.FunctionDef) and "download" in [each.arg for each in node.args.args]


@lru_cache(maxsize=8)
def _called_first(program: Program) -> frozenset[str]:
    """The names of functions that rank 0 runs while the others wait: no place for a barrier."""
    runs = ((home, each) for home in program.modules for each in _candidates(home))
    return frozenset(last_name(call.node.func) for home, each in runs for call in inside(home, each))


@lru_cache(maxsize=1000)
def _done_first(module: Module) -> dict[ast.stmt, str]:
    """The statements that rank 0 runs before the others, and what it does there; not what stands in another one."""
    candidates, called = _candidates(module), _called_first(module.program)

    def waits(outer: ast.AST) -> bool:
        return outer in candidates or getattr(outer, "name", "") in called or _takes_download(outer)

    return {each: why for each, why in candidates.items() if not any(map(waits, module.around(each)))}


def _candidates(module: Module) -> dict[ast.stmt, str]:
    """The statements that download, or make what is not there."""
    downloads = (
        call for call in module.calls if is_download(module, call) and not _is_handed_on(module, call)
    )
    done = {module.statement(call.node): "downloads" for call in downloads}
    for choice in module.all(ast.If):
        denies = any(isinstance(each, ast.Not) for each in ast.walk(choice.test))
        made = (call.node for each in choice.body for call in inside(module, each))
        if (
            denies
            and _asks_files(choice)
            and any(each in leading_to_writing(module.program) for each in made)
        ):
            done.setdefault(choice, "writes")
    return done


def _asks_files(choice: ast.AST) -> bool:
    return isinstance(choice, ast.If) and bool(words_in(choice.test) & ASKS_FILES)


def _is_handed_on(module: Module, call: Call) -> bool:
    """Whether it is `super().__init__(download=download)` or stands in an expression that is not run here."""
    function, given = module.function_around(call.node), call.keyword("download")
    return isinstance(function, ast.Lambda) or bool(given and isinstance(given.value, ast.Name) and function)


def _may_follow(module: Module, call: Call) -> bool:
    """Whether rank 0 may have written before: above a call, in a loop around it, or before its function is called."""
    return any(_has_written(*each) for each in all_from([(module, call)], _callers))


def _callers(place: tuple[Module, Call]) -> Iterator[tuple[Module, Call]]:
    module, call = place
    function = module.enclosing(call.node, ast.FunctionDef)
    if function is not None:
        owner = module.parents[function] if function.name == "__init__" else function
        yield from module.program.calls_of(module, owner)


@lru_cache(maxsize=10000)
def _has_written(module: Module, call: Call) -> bool:
    statement = module.statement(call.node)
    around = takewhile(lambda each: not isinstance(each, DEFINITIONS), (statement, *module.around(statement)))
    for each in (each for each in around if isinstance(each, ast.stmt)):
        above = [other for other in module.block_of(each) if other.lineno < each.lineno]
        parts = [each] if isinstance(each, LOOPS) else above
        run = (part for part in parts if not isinstance(part, DEFINITIONS))
        calls = {call.node for part in run for call in inside(module, part)}
        if any(not _is_first(module, node) for node in calls & leading_to_writing(module.program)):
            return True
    return False


def _is_first(module: Module, node: ast.AST) -> bool:
    """Whether rank 0 comes to a place before the others, who wait meanwhile: there is no place for a barrier."""
    called = getattr(module.function_around(node), "name", "") in _called_first(module.program)
    return called or node in first_on_rank0(module)


def _question_or_read(module: Module, node: ast.AST) -> ast.stmt:
    """The statement that reads, or the `if os.path.exists(path):` around it: all ranks must come to the barrier."""
    statement = module.statement(node)
    within = takewhile(lambda each: not isinstance(each, FUNCTIONS), module.around(statement))
    return [statement, *filter(_asks_files, within)][-1]  # type: ignore[return-value]  # an `if` is one
