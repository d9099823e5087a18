"""Where models are wrapped in DataParallel, and for how many devices."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.own_mode import OwnMode
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.helper_module import pasted_lines

WRAPS = (*CLASSES, "torch.nn.parallel.data_parallel", "torch.nn.parallel.parallel_apply")


@dataclass(frozen=True, eq=False)
class Wrap:
    """A call of DataParallel, or where else it is named."""

    module: Module
    node: ast.expr  # the class
    call: Call | None

    @property
    def is_class(self) -> bool:
        """Whether it is DataParallel itself, or a library's that derives from it: none of the functions."""
        return self.module.name(self.node) in CLASSES

    def argument(self, position: int, name: str) -> ast.expr | None:
        """What the class is given at a position; the functions have the names alone in common with it."""
        return self.call.argument(position if self.is_class else None, name) if self.call else None

    @property
    def device_ids(self) -> ast.expr | None:
        return self.argument(1, "device_ids")

    @property
    def output_device(self) -> ast.expr | None:
        return self.argument(2, "output_device")

    @property
    def count(self) -> int | None:
        """How many devices are named, also by a list of names: `[args.gpu]` is one."""
        given = self.device_ids
        return _count(self.module, given) if given is not None else None

    @property
    def is_single(self) -> bool:
        """For one device, DataParallel is a plain call."""
        return self.count == 1


def _count(module: Module, node: ast.expr) -> int | None:
    match module.value(node):
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[ast.expr() as inner]):
            return _count(module, inner)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return None if any(isinstance(item, ast.Starred) for item in items) else len(items) or None
        case ast.Call(func=ast.Name(id="range"), args=[*bounds]):
            numbers = [
                each.value
                for each in bounds
                if isinstance(each, ast.Constant) and isinstance(each.value, int)
            ]
            return len(range(*numbers)) if len(numbers) == len(bounds) else None
        case ast.Constant(value=int()):
            return 1
        case ast.Attribute(value=ast.Name(id="self")) as attribute:
            origins = module.program.flow.origins(module, attribute)
            counts = {_count(*each) for each in origins if not isinstance(each[1], ast.Attribute)}
            return counts.pop() if len(counts) == 1 else None
    return None


@lru_cache(maxsize=1)
def find_wraps(program: Program) -> tuple[Wrap, ...]:
    """All wraps that can run; not those of a distributed mode of the script's own, and no questions about types."""
    wraps = (wrap for module in of_the_user(program) for wrap in wraps_in(module))
    return tuple(wrap for wrap in wraps if program.reach.runs(wrap.module, wrap.node))


def wraps_in(module: Module) -> Iterator[Wrap]:
    """Those of a file, whether they can run or not."""
    own_mode, pasted = OwnMode(module), pasted_lines(module.source)
    for node, _ in mentions(module, WRAPS):
        if not (is_type_test(module, node) or own_mode.holds(node) or node.lineno in pasted):
            yield Wrap(module, node, module.call_of(node))


def largest_count(wraps: tuple[Wrap, ...]) -> int | None:
    """How many devices the script names; None if it takes what is there."""
    counts = {wrap.count for wrap in wraps} - {None}
    return max(counts, default=None)  # type: ignore[type-var]  # no None among them
