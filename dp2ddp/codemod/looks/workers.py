"""What a DataLoader's workers share with the main flow: rank 0 alone has workers, and what they fill is rank 0's."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.knowledge.derived import LOADER, LOADERS
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.uses import bases_in_libraries
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

NO_WORKERS = ((5, "num_workers", 0),)
# What makes memory that processes share. A context, or a manager, has some of these as methods.
SHARING = words("Array RawArray RawValue SharedMemory ShareableList")
MAPPED = ("torch.from_file", "torch.UntypedStorage.from_file", "mmap.mmap")


def loads_with_workers(module: Module) -> Iterator[tuple[ast.expr, str, Call | None]]:
    """Where a file names DataLoader, or one derived from it, and may give it workers."""
    for node, name in mentions(module, [LOADER, *LOADERS]):
        parent = module.parents[node]
        call = Call(parent, LOADER) if isinstance(parent, ast.Call) and parent.func is node else None
        if not (is_type_test(module, node) or call and is_without(module, call, NO_WORKERS)):
            yield node, name, call


def is_without(module: Module, call: Call, arguments: tuple[tuple[int, str, object], ...]) -> bool:
    """Whether a call gives none of these arguments, or what they are without it: `sampler = None` above it, too."""
    given = ((call.argument(place, name), default) for place, name, default in arguments)
    values = ((node and module.value(node), default) for node, default in given)
    return not call.may_have_more and all(
        value is None or isinstance(value, ast.Constant) and value.value == default
        for value, default in values
    )


def is_shared_memory(call: Call) -> bool:
    """Whether it makes memory that workers may fill and the main flow may look at: whether they do is not asked."""
    if call.name in MAPPED:
        return "ACCESS_READ" not in ast.unparse(call.node)
    home, _, last = (call.name or f"multiprocessing.{call.method}").rpartition(".")  # a context's `Array`
    return home.startswith("multiprocessing") and last in SHARING or call.method == "share_memory_"


@lru_cache(maxsize=1)
def has_workers(program: Program) -> bool:
    """Whether a loader may have workers."""
    return any(True for module in program.modules for _ in loads_with_workers(module))


def loads_without_workers(program: Program) -> bool:
    """Whether a loader has no workers: then whoever goes through it draws what its sampler and its data set draw."""
    return any(
        {LOADER, *LOADERS} & {call.name, *bases_in_libraries(module, call.name)}
        and is_without(module, call, NO_WORKERS)
        for module, call in program.calls
    )
