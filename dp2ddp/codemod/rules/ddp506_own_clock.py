"""Ask one clock where a time decides something.

`time.time()` becomes `ask_rank0(time.time)` where the time is more than subtracted, formatted, printed or logged.
The same for process ids, names of machines, and the memory that is in use; and for `os.path.exists` where somebody
ends a loop by a file: it is looked for in each round, under one name.

Each rank's clock says something else: names of folders differ, and a limit is over on one rank alone. A file that
comes between two ranks' looks ends the loop on one of them.

A time is followed by names and attributes, into functions and objects of the program (meters, timers, bars) and out
of them. What is given to a function that is not known decides. Of a clock that is handed on (`clock=time.time`)
nobody sees who reads it: it is rank 0's. The count of a bar of tqdm lags behind by the clock:
where it decides, it is rank 0's. Hazards: hydra, which names and enters a folder by the clock before the first line
of main runs, and sets of modules or parameters that are walked over.

docs/semantics.md#clocks.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Replace
from dp2ddp.codemod.knowledge.functions import Does, does, what_is
from dp2ddp.codemod.looks.clock_course import decides
from dp2ddp.codemod.looks.mentions import handed_on
from dp2ddp.codemod.looks.orders import hash_orders
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, inside, last_name, stored_names
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags, hand_on

LOOKS = ("os.path.exists", "os.path.isfile")
OF_OBJECTS = re.compile(
    r"\.(parameters|modules|children|buffers)\("
)  # their hashes are their places in memory
COUNTS = ("n", "last_print_n", "format_dict")
LEAVES = ("sys.exit", "builtins.exit", "builtins.quit")
FOLDER_BY_CLOCK = Reason(
    "folder-by-clock",
    "{name} names its folders by each rank's own clock",
    "give it a folder (hydra.run.dir=...)",
)
SET_OF_OBJECTS = Reason(
    "set-of-modules",
    "a set of modules or parameters has another order on each rank",
    "keep them in a list, or in dict.fromkeys(...)",
)


class OwnClock(Rule):
    examples = (
        diff("""
              import os
              import time
              import torch
            - torch.manual_seed(int(time.time()))
            - start = time.time()
            + torch.manual_seed(int(ask_rank0(time.time)))
            + start = ask_rank0(time.time)
            - while time.time() - start < 60:
            + while ask_rank0(time.time) - start < 60:
                  step()
            -     if os.path.exists("STOP"):
            +     if ask_rank0(os.path.exists, "STOP"):
                      break
        """),
        flags("""
            # has another order on each rank
            rest = set(net.parameters()) - set(net.head.parameters())
            optimizer = SGD(list(rest), lr=0.1)
        """),
        Untouched("""
            import time
            end = time.time()
            for images in loader:
                print("loading took", time.time() - end)
                end = time.time()
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if _differs(call) and decides(module, call.node):
                what = "answer" if does(call.name) is Does.DIFFER else "clock"
                yield call_by(call.node, "ask_rank0", f"rank 0's {what} decides for all")
            elif call.name in LOOKS and _ends_loop(module, call.node):
                yield call_by(call.node, "ask_rank0", "rank 0 looks for all whether the loop ends")
            elif does(call.name) is Does.NAME_BY_CLOCK:
                yield Hazard(call.node, FOLDER_BY_CLOCK.of(name=call.name))
        for clock in _handed_on(module):
            yield hand_on(module, clock, "ask_rank0", "whoever calls it asks rank 0's clock")
        for node in hash_orders(module):
            around = module.parents[node]
            if OF_OBJECTS.search(module.text(around if isinstance(around, ast.Call) else node)):
                yield Hazard(node, SET_OF_OBJECTS)
        for node in module.all(ast.Attribute):
            if _is_count_of_bar(module, node) and decides(module, node):
                code, because = "ask_rank0(lambda: {it})", "rank 0's bar counts for all"
                yield Replace(node, code, because, {"it": node}, helpers=("ask_rank0",))


def _handed_on(module: Module) -> Iterator[ast.expr]:
    """`clock=time.time`; also `getattr(time, name)`, with a name that stands elsewhere."""
    yield from (node for node, _ in handed_on(module, Does.CLOCK, Does.DIFFER))
    for call in module.calls:
        is_lookup = call.name == "builtins.getattr" and module.name(call.argument(0)) == "time"
        if is_lookup and not module.name(call.node):
            yield call.node


def _differs(call: Call) -> bool:
    row = what_is(call.name)
    if row is None:
        return False
    asks_now = row.does is Does.CALENDAR and call.argument(row.position, row.keyword) is None
    return row.does in (Does.CLOCK, Does.DIFFER) or asks_now


def _is_count_of_bar(module: Module, node: ast.Attribute) -> bool:
    """Whether it is the count of a bar, which lags behind by parts of a second."""
    if node.attr not in COUNTS or not isinstance(node.ctx, ast.Load):
        return False
    made = ((home, each.node or each.whole) for home, each in module.program.bindings(module, node.value))
    return any(
        isinstance(each, ast.Call) and (home.name(each.func) or "").startswith("tqdm.") for home, each in made
    )


def _ends_loop(module: Module, look: ast.Call) -> bool:
    """Whether a loop ends by a file that it looks for under one name, round by round."""
    loop, statement = module.enclosing(look, *LOOPS, *FUNCTIONS), module.statement(look)
    if not isinstance(loop, LOOPS) or {*map(last_name, inside(look, ast.Name))} & stored_names(loop):
        return False
    if statement is loop:
        return isinstance(loop, ast.While)
    leaves = any(call.name in LEAVES for call in module.calls_in(statement))
    return isinstance(statement, ast.If) and (leaves or any(inside(statement, ast.Break, ast.Return)))
