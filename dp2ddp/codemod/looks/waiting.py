"""Helpers that wait for all ranks, and the functions in which ranks do not wait for each other: those of forwards."""

import ast
from functools import lru_cache

from dp2ddp.codemod.edits import Edit, Finding, Hazard
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import defaults, places, stored_names
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason

IN_FORWARD = Reason(
    "waits-in-forward",
    "{code}() runs in the forward of a model, where ranks do not wait for each other",
    "do it outside of the forward, with what that returns",
)

WAITING = {
    *("run_on_rank0", "ask_rank0", "rank0_first", "save_on_rank0", "write_on_rank0", "open_on_rank0"),
    *("open_by_on_rank0", "open_path_on_rank0", "make_on_rank0", "make_handler_on_rank0", "hold_on_rank0"),
    *("share_streams", "TemporaryFolderOnRank0"),
}


def if_together(module: Module, finding: Finding) -> Finding:
    """A finding; a hazard where it would let ranks wait in a forward: those without rows do not come there."""
    if not isinstance(finding, Edit) or WAITING.isdisjoint(finding.helpers):
        return finding
    node = finding.node
    if _in_forwards(module.program).isdisjoint(module.around(node)) or _is_left_out(module, node):
        return finding
    code = ast.unparse(node).partition("(")[0]
    return Hazard(node, IN_FORWARD.of(code=code))


def _is_left_out(module: Module, node: ast.AST) -> bool:
    """Whether it is done `if path is not None`, a parameter that no call in a forward gives."""
    function, in_forwards = module.function_around(node), _in_forwards(module.program)
    if function is None:
        return False
    usual = {name for name, value in defaults(function).items() if ast.unparse(value) == "None"}
    usual -= stored_names(function)
    ifs = (each for each, inner in module.steps(node) if isinstance(each, ast.If) and inner in each.body)
    tests = {ast.unparse(each.test) for each in ifs}
    calls = [
        call
        for home, call in module.program.calls_of(module, function)
        if not in_forwards.isdisjoint(home.around(call.node))
    ]
    return any(
        {name, f"{name} is not None"} & tests
        and not any(call.may_have_more or module.given(function, call, name) for call in calls)
        for name in usual & {each.arg for each in places(function)}
    )


@lru_cache(maxsize=1)
def _in_forwards(program: Program) -> frozenset[ast.AST]:
    return frozenset(each for _, each in forwards_of(program).surely_running)
