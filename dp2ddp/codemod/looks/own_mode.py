"""A distributed mode of the script's own, which a conversion leaves as it is: it is not run."""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import DEFINITIONS, FUNCTIONS, inside

GROUP = "torch.distributed.init_process_group"
Branch = tuple[ast.AST, str]


class OwnMode:
    """The functions and branches of a file that set up a distributed mode, and wrap nothing in DataParallel.

    Of `def worker(args): if args.distributed: init_process_group(...)` that is the branch: the rest runs anyway.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        makers = [call for call in module.calls if does(call.name) is Does.DISTRIBUTE]
        groups = [
            each.node for each in makers if each.name == GROUP and not any(_branches(module, each.node))
        ]
        around = {each for node in groups for each in module.around(node) if isinstance(each, FUNCTIONS)}
        self.functions = {function for function in around if not self._wraps([function])}
        innermost = (next(_branches(module, call.node), None) for call in makers)
        self.branches = {
            branch for branch in innermost if branch and not self._wraps(getattr(branch[0], branch[1]))
        }

    def _wraps(self, nodes: list[ast.AST]) -> bool:
        named = (each for node in nodes for each in inside(node, ast.Name, ast.Attribute))
        return any(does(self.module.name(each)) is Does.WRAP for each in named)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node stands in one of them."""
        if self.functions and any(each in self.functions for each in self.module.around(node)):
            return True
        return bool(self.branches) and not self.branches.isdisjoint(_branches(self.module, node))


def _branches(module: Module, node: ast.AST) -> Iterator[Branch]:
    """The branches of `if` that a node stands in, in its function, from the inside out."""
    for parent, inner in module.steps(node):
        if isinstance(parent, DEFINITIONS):
            return
        if isinstance(parent, ast.If) and _depends(parent.test):
            yield from ((parent, side) for side in ("body", "orelse") if inner in getattr(parent, side))


def is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether a condition stands before a node, in its function or around every call of that."""
    return module.program.stands_under(module, node, _is_condition, all)


def _is_condition(module: Module, parent: ast.AST, inner: ast.AST) -> bool:
    """Whether it depends on something whether a part of this runs: on no constant, and not on `__name__`."""
    if isinstance(parent, (ast.If, ast.IfExp)) and inner is not parent.test and _depends(parent.test):
        return True
    return any(map(_ends, module.ifs_above(inner)))  # `if not args.distributed: return`


def _ends(choice: ast.If) -> bool:
    """Whether one of its branches, those of elif and else too, ends the function."""
    lasts = [branch[-1] for branch in (choice.body, choice.orelse) if branch]
    is_end = any(isinstance(each, (ast.Return, ast.Raise)) for each in lasts)
    match choice.orelse:
        case [ast.If() as other] if _ends(other):
            return True
    return is_end and _depends(choice.test)


def _depends(test: ast.expr) -> bool:
    names = {ast.unparse(node) for node in inside(test, ast.Name, ast.Attribute)}
    return bool(names - {"__name__"})
