"""Ranks that a library knows of: what it does itself, and what the script leaves to one of them, stays as it is."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, InsertAfter, Note
from dp2ddp.codemod.looks.hidden_wraps import HiddenWrap, hidden_wraps, shows_one_gpu
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.codemod.model.program import Program

# What asks which rank this is, in the words of transformers, accelerate and torch.
ASKS_RANK = re.compile(
    r"\b(is_(world|local)_process_zero|is_(local_)?main_process|(local_)?process_index|(local_|global_)?rank"
    r"|get_rank|should_(save|log)|(local_|on_|on_local_)?main_process(_first)?|\w*(rank_?0|rank_zero|master)\w*)\b"
    r"|_RANK\b|['\"]RANK\b"
)
OWN = ("builtins.print", "random.", "numpy.random.", "torch.rand")
ON_RANK0 = ("_save", "create_model_card")  # methods of a Trainer that it calls on rank 0 alone


@lru_cache(maxsize=1)
def library_wraps(program: Program) -> tuple[HiddenWrap, ...]:
    """The libraries that train the program's models by DistributedDataParallel when it is started as ranks.

    None beside a DataParallel of the script's own: its ranks are hidden from libraries.
    """
    if shows_one_gpu(program) or any(not wrap.is_single for wrap in find_wraps(program)):
        return ()
    return tuple(wrap for wrap in hidden_wraps(program) if wrap.library.starts_ddp)


def does_its_own(program: Program) -> bool:
    """Whether the script prints or draws by itself: on each rank, where nothing is done about it."""
    return any(
        (call.name or "").startswith(OWN) and program.reach.runs(module, call.node)
        for module in of_the_user(program)
        for call in module.calls
    )


def left_to_script(module: Module, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings, without what the library does with the ranks, and what one rank alone does."""
    if not library_wraps(module.program):
        yield from findings
        return
    for finding in findings:
        node = finding.node
        is_call = isinstance(node, ast.expr) and not isinstance(finding, Note)
        if is_call and (_is_method_of_trainer(module, node) or is_on_one_rank(module, node)):
            continue
        if isinstance(finding, InsertAfter) and "HeldByRank0" in finding.helpers:
            # `wandb` of `wandb = HeldByRank0(wandb)`, at whose uses rank 0 is asked: it may come there alone
            uses = module.by_word[finding.code.partition(" ")[0]]
            if any(is_on_one_rank(module, use) for use in uses):
                continue
        yield finding


def _is_method_of_trainer(module: Module, node: ast.AST) -> bool:
    """`trainer.save_model(path)`, `self.accelerator.save_state()`, in a class of its own `super().save_model()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner)):
            return "accelerator" in ast.unparse(owner) or is_trainer(module, owner)
    return False


def is_trainer(module: Module, node: ast.expr) -> bool:
    """Whether an object surely is one that wraps: it was made so, or it is `self` in a class derived from it."""
    wraps = library_wraps(module.program)
    made = {wrap.call.node for wrap in wraps if wrap.call}
    if any(origin in made for _, origin in module.program.flow.origins(module, node)):
        return True
    own = {wrap.own_class[1] for wrap in wraps if wrap.own_class}
    is_self = ast.unparse(node) in ("self", "super()")
    return is_self and any(each in own for each in module.around(node))


def is_on_one_rank(module: Module, node: ast.AST) -> bool:
    """Whether the script itself asks for the rank before it comes here."""
    return module.program.stands_under(module, node, _asks_rank, any)


def _asks_rank(module: Module, parent: ast.AST, inner: ast.AST) -> bool:
    """`if trainer.is_world_process_zero():`, `with args.main_process_first():`, or a return of the others above."""
    match parent:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if inner is not test and _is_of_rank(module, test):
                return True
        case ast.With(items=items):
            if any(_is_of_rank(module, each.context_expr) for each in items):
                return True
        case ast.FunctionDef(name=name, decorator_list=decorators):
            if name in ON_RANK0 or any(_is_of_rank(module, each) for each in decorators):
                return True
    return any(
        isinstance(each.body[-1], (ast.Return, ast.Continue)) and _is_of_rank(module, each.test)
        for each in module.ifs_above(inner)
    )


def _is_of_rank(module: Module, test: ast.expr) -> bool:
    """Whether an expression, or what a name in it was set to, asks for the rank."""
    values = (value for name in inside(test, ast.Name) for value in module.values(name))
    return any(ASKS_RANK.search(module.text(each)) for each in (test, *values))
