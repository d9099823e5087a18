"""DDP506: clocks that decide something."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, what_is
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Finding, Rule, call_by

SHOWS = {
    *(
        "print",
        "info",
        "debug",
        "warning",
        "error",
        "write",
        "set_description",
        "set_postfix",
        "update",
        "add_scalar",
    ),
    *("log", "append", "writerow"),
}
KEEPS = {"format", "round", "int", "float", "str", "timedelta", "divmod", "strftime", "total_seconds"}
THROUGH = (
    ast.keyword, ast.BinOp, ast.UnaryOp, ast.FormattedValue, ast.JoinedStr, ast.Tuple, ast.List, ast.Attribute,
)  # fmt: skip


class OwnClock(Rule):
    """Ask one clock where a time decides something.

    ## What it does
    `time.time()` becomes `ask_rank0(time.time)` where the time is more than subtracted, formatted, printed or logged.

    ## Why
    Each rank's clock says something else: names of folders differ, and a limit is over on one rank alone.
    """

    code = "DDP506"
    name = "own-clock"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            row = what_is(call.name)
            if row is None:
                continue
            asks_now = row.does is Does.CALENDAR and call.argument(row.position, row.keyword) is None
            if row.does is Does.CLOCK or asks_now:
                if Course(module).decides(call.node):
                    yield call_by(call.node, "ask_rank0", "rank 0's clock decides for all")
            elif row.does is Does.NAME_BY_CLOCK:
                yield Hazard(
                    call.node,
                    f"{call.name} names its folders by each rank's own clock",
                    "give it a folder (hydra.run.dir=...)",
                )


class Course:
    """Where a time goes: upwards to its statement, and through the names that it is kept in."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.seen: set[str] = set()

    def decides(self, node: ast.AST) -> bool:
        child = node
        for parent in self.module.around(node):
            match parent:
                case ast.Call(func=func) if func is not child:
                    called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                    if called in SHOWS or called not in KEEPS:
                        return called not in SHOWS
                case ast.Call():
                    pass
                case ast.Assign(targets=targets):
                    return any(self.kept(target) for target in targets)
                case ast.AugAssign(target=target):
                    return self.kept(target)
                case ast.Expr():
                    return False
                case _ if not isinstance(parent, THROUGH):
                    return True
            child = parent
        return True

    def kept(self, target: ast.AST) -> bool:
        """Whether one of the uses of what a time is kept in decides something."""
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return True
        text = ast.unparse(target)
        if text in self.seen:
            return False
        self.seen.add(text)
        mentions = self.module.all(type(target))
        uses = (each for each in mentions if isinstance(each.ctx, ast.Load) and ast.unparse(each) == text)
        return any(self.decides(use) for use in uses)
