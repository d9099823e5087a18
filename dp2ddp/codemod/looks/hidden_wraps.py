"""Where a library wraps the model in DataParallel by itself, and nobody wrote it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.knowledge.wrapping_libraries import (
    IMPORTS,
    LIBRARIES,
    WrappingLibrary,
    wrapping_library,
)
from dp2ddp.codemod.looks.mentions import is_handed_on
from dp2ddp.codemod.looks.ours import has_joined, of_the_user
from dp2ddp.codemod.looks.start import visible_count
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.codemod.model.program import Program

METHODS = {each.method for each in LIBRARIES} - {""}
STRATEGIES = ("DataParallelStrategy", "DataParallelPlugin")


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
