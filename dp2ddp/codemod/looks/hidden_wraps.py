"""Where a library wraps the model in DataParallel by itself, and nobody wrote it.

Started as ranks, some of them train by DistributedDataParallel: what such a library does itself with the ranks, and
what the script leaves to one of them, stays as it is.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, InsertAfter, Note
from dp2ddp.codemod.knowledge.wrapping_libraries import IMPORTS, LIBRARIES, WrappingLibrary, wrapping_library
from dp2ddp.codemod.looks.mentions import is_handed_on
from dp2ddp.codemod.looks.ours import has_joined, of_the_user
from dp2ddp.codemod.looks.start import visible_count
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.codemod.model.program import Program

METHODS = {each.method for each in LIBRARIES} - {""}
STRATEGIES = ("DataParallelStrategy", "DataParallelPlugin")
# What asks which rank this is, in the words of transformers, accelerate and torch.
ASKS_RANK = re.compile(
    r"\b(is_(world|local)_process_zero|is_(local_)?main_process|(local_)?process_index|(local_|global_)?rank"
    r"|get_rank|should_(save|log)|(local_|on_|on_local_)?main_process(_first)?|\w*(rank_?0|rank_zero|master)\w*)\b"
    r"|_RANK\b|['\"]RANK\b"
)
OWN = ("builtins.print", "random.", "numpy.random.", "torch.rand")
ON_RANK0 = ("_save", "create_model_card")  # methods of a Trainer that it calls on rank 0 alone


@dataclass(frozen=True, eq=False)
class HiddenWrap:
    """A use of a library that wraps: `Trainer(...)`, `Fabric(strategy="dp")`, `learn.to_parallel()`."""

    module: Module
    node: ast.expr  # the class, function or method
    library: WrappingLibrary
    call: Call | None = None  # None where the class is handed on: who calls it is not seen
    own_class: tuple[Module, ast.ClassDef] | None = None  # of the program, derived from the library's


def may_wrap_hidden(text: str) -> bool:
    """Whether a file imports a library that wraps."""
    return IMPORTS.search(text) is not None


def shows_one_gpu(program: Program) -> bool:
    """Whether the script makes one GPU visible: a library wraps nothing then."""
    return visible_count(program.entry) in (0, 1)


@lru_cache(maxsize=1)  # each file asks
def _may_wrap(program: Program) -> bool:
    return any(may_wrap_hidden(each.source.text) for each in program.modules)


@lru_cache(maxsize=1)
def hidden_wraps(program: Program) -> tuple[HiddenWrap, ...]:
    """All uses of libraries that wrap, that can run, in the order of the files."""
    wraps = (wrap for module in of_the_user(program) for wrap in wraps_in(module))
    return tuple(wrap for wrap in wraps if wrap.module.program.reach.runs(wrap.module, wrap.node))


def derived_in(module: Module) -> Iterator[HiddenWrap]:
    """The classes of a file that are derived from one that wraps."""
    for node in module.all(ast.ClassDef):
        if library := _library_of(module, node):
            yield HiddenWrap(module, node.bases[0], library, None, (module, node))


def wraps_in(module: Module) -> Iterator[HiddenWrap]:
    """The uses in a file, whether they can run or not."""
    if not _may_wrap(module.program) or has_joined(module.program.entry):
        return  # none, or converted already
    called = set()
    for call in module.calls:
        for wrap in _of_call(module, call):
            called.add(wrap.node)
            if not wrap.library.switch or _says_dp(module, call, wrap.library):
                yield wrap
    for name, nodes in module.mentions.items():
        library = wrapping_library(name)
        if library and not library.switch:
            yield from (
                HiddenWrap(module, node, library)
                for node in nodes
                if node not in called and is_handed_on(module, node, name)
            )


def _of_call(module: Module, call: Call) -> Iterator[HiddenWrap]:
    node = call.node.func
    if call.method in METHODS:
        makers = module.program.flow.makers(module, node.value)  # type: ignore[attr-defined]  # a method has one
        named = (name for home, maker in makers for name in _names(home, maker))
        libraries = (wrapping_library(name, call.method) for name in named)
        yield from (HiddenWrap(module, node, each, call) for each in [*filter(None, libraries)][:1])
    for name in _names(module, node):
        if library := wrapping_library(name):
            yield HiddenWrap(module, node, library, call)
            return
    own = module.definition(node)
    if own and isinstance(own[1], ast.ClassDef) and (library := _library_of(own[0], own[1])):
        yield HiddenWrap(module, node, library, call, (own[0], own[1]))


def _names(module: Module, node: ast.expr) -> Iterator[str]:
    """What an expression may be called: also by `from library import *`."""
    if name := module.name(node):
        yield name
    elif isinstance(node, ast.Name):
        yield from (f"{home}.{node.id}" for home in module.stars)


def _library_of(module: Module, node: ast.ClassDef) -> WrappingLibrary | None:
    """The library whose class one of the program is derived from."""
    names = (name for home, base in module.program.bases(module, node) for name in _names(home, base))
    return next(filter(None, map(wrapping_library, names)), None)


def _says_dp(module: Module, call: Call, library: WrappingLibrary) -> bool:
    """`strategy="dp"`, `strategy=DataParallelStrategy()`, `**settings` that have the word among what they hold."""
    given = (call.argument(None, name) for name in library.switch)
    handed_on = (module.value(each.value) for each in call.node.keywords if each.arg is None)
    held = (constant.value for each in handed_on for constant in inside(each, ast.Constant))
    return any(_is_dp(module, each) for each in given if each is not None) or "dp" in held


def _is_dp(module: Module, given: ast.expr) -> bool:
    value = module.value(given)
    if isinstance(value, ast.Call):
        return (module.name(value.func) or "").endswith(STRATEGIES)
    return "dp" in module.texts(value)


# --- ranks that a library knows of


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
