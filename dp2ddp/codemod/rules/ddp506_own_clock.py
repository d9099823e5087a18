"""DDP506: clocks, and what else differs from process to process, that decide something."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.clock_course import Course
from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, what_is
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.rule import Finding, Flags, Rewrites, Rule, Untouched, call_by


class OwnClock(Rule):
    """Ask one clock where a time decides something.

    ## What it does
    `time.time()` becomes `ask_rank0(time.time)` where the time is more than subtracted, formatted, printed or logged.
    The same for process ids, names of machines, and the memory that is in use.

    ## Why
    Each rank's clock says something else: names of folders differ, and a limit is over on one rank alone.

    ## Safety
    A time is followed by names and attributes, into functions and objects of the program (meters, timers, bars) and out
    of them. What is given to a function that is not known decides. Hydra names and enters a folder by the clock before
    the first line of main runs: a hazard.

    ## References
    docs/semantics.md#clocks.
    """

    code = "DDP506"
    name = "own-clock"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import os
                import time
                train("runs/" + time.strftime("%H%M"))
                start = time.time()
                while time.time() - start < 60:
                    step()
                folder = f"runs/{os.getpid()}"
            """,
            after="""
                import os
                import time
                train("runs/" + ask_rank0(time.strftime, "%H%M"))
                start = ask_rank0(time.time)
                while ask_rank0(time.time) - start < 60:
                    step()
                folder = f"runs/{os.getpid()}"
            """,
        ),
        Rewrites(
            before="""
                import time
                import torch
                class Timer:
                    def __init__(self):
                        self.began = time.time()
                    def is_over(self):
                        return time.time() - self.began > 60
                timer = Timer()
                torch.manual_seed(int(time.time()))
                while not timer.is_over():
                    step()
            """,
            after="""
                import time
                import torch
                class Timer:
                    def __init__(self):
                        self.began = ask_rank0(time.time)
                    def is_over(self):
                        return ask_rank0(time.time) - self.began > 60
                timer = Timer()
                torch.manual_seed(int(ask_rank0(time.time)))
                while not timer.is_over():
                    step()
            """,
        ),
        Flags(
            before="""
                import hydra
                @hydra.main(config_path="conf")
                def main(config): ...
            """,
            message="hydra.main",
        ),
        Untouched(
            """
                import os
                import time
                class Meter:
                    def update(self, value):
                        self.sum += value
                        self.average = self.sum / 2
                batch_time, losses = Meter(), Meter()
                end = time.time()
                for images in loader:
                    batch_time.update(time.time() - end)
                    losses.update(loss)
                    end = time.time()
                    print(f"{batch_time.average:.3f} {os.getpid()}")
                if losses.average < best:
                    keep(net)
                seconds = time.time() - end
                text = "took "
                if seconds > 60:
                    text += "more than "
                print(text, seconds)
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if _differs(call) and Course().decides(module, call.node):
                yield call_by(call.node, "ask_rank0", "rank 0's clock decides for all")
            elif (row := what_is(call.name)) and row.does is Does.NAME_BY_CLOCK:
                message = f"{call.name} names its folders by each rank's own clock"
                yield Hazard(call.node, message, "give it a folder (hydra.run.dir=...)")


def _differs(call: Call) -> bool:
    row = what_is(call.name)
    if row is None:
        return False
    asks_now = row.does is Does.CALENDAR and call.argument(row.position, row.keyword) is None
    return row.does in (Does.CLOCK, Does.DIFFER) or asks_now
