"""DDP705: what is printed, logged, tracked and saved once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Guard, Hazard, InsertAfter, Replace, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.once import Once, StatementRun, read_once
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class RankZero(Rule):
    """Print, log, track and save on rank 0 alone.

    ## What it does
    Statements that print, log, write a file or tell a tracker stand under `if rank == 0:`, those that follow each other
    together, with what is computed for them alone. `if is_best: torch.save(...)` becomes
    `if rank == 0 and is_best: ...`. A writer or a file that is kept is `SummaryWriter(...) if rank == 0 else None`, and
    a progress bar gets `disable=rank != 0`.

    ## Why
    Every rank would print every line and write every file, all at once.

    ## Safety
    A statement that all ranks need (it runs the model, draws random numbers, changes what is read elsewhere), or whose
    result is used, is not put under the condition: a hazard. What is printed in a data set or in the model's forward is
    printed by the rank whose samples they are, as a worker or a replica did.

    ## References
    docs/semantics.md#printing; docs/idiomatic.md.
    """

    code = "DDP705"
    name = "idiomatic-rank-zero"
    nodes = ("BaseStatement", "Call", "Name")
    examples = (
        Rewrites(
            before="""
                import os
                import torch
                net = torch.nn.DataParallel(net)
                for epoch in range(3):
                    print("epoch", epoch)
                    print("==>")
                    acc = test(net)
                    if acc > best:
                        state = {"net": net.state_dict(), "acc": acc}
                        if not os.path.isdir("out"):
                            os.makedirs("out")
                        torch.save(state, "out/best.pth")
                        best = acc
            """,
            after="""
                import os
                import torch
                net = torch.nn.DataParallel(net)
                for epoch in range(3):
                    if rank == 0:
                        print("epoch", epoch)
                        print("==>")
                    acc = test(net)
                    if acc > best:
                        if rank == 0:
                            state = {"net": net.state_dict(), "acc": acc}
                            if not os.path.isdir("out"):
                                os.makedirs("out")
                            torch.save(state, "out/best.pth")
                        best = acc
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                from tqdm import tqdm
                net = torch.nn.DataParallel(net)
                writer = SummaryWriter("runs")
                for x in tqdm(loader):
                    writer.add_scalar("loss", loss.item())
                if is_best:
                    torch.save(net.state_dict(), "best.pth")
            """,
            after="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                from tqdm import tqdm
                net = torch.nn.DataParallel(net)
                writer = SummaryWriter("runs") if rank == 0 else None
                for x in tqdm(loader, disable=rank != 0):
                    if rank == 0:
                        writer.add_scalar("loss", loss.item())
                if rank == 0 and is_best:
                    torch.save(net.state_dict(), "best.pth")
            """,
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                print(net(x))
            """,
            message="net(x)",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = net(x)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        once, words = read_once(facts), ProcessNames(facts)
        for run in once.runs:
            yield from _put_under(words, run)
            if run.gets_data(facts.script):
                yield InsertAfter(
                    run.last, f"{words.dist}.barrier()", "the other ranks wait until the data are there"
                )
        yield from _kept(once, words)
        for node, why in once.stuck:
            yield Hazard(node, why, "give it a line of its own before, or take the exact style")
        if once.runs or once.made or once.bars:
            yield from words.imports("asks for the rank")


def _put_under(words: ProcessNames, run: StatementRun) -> Iterator[Finding]:
    because = "one run writes once: rank 0 does" if run.writes else "one run prints once: rank 0 does"
    if run.fold is None:
        yield Guard(run.first, run.last, words.is_first, because)
        return
    test = run.fold.test
    loose = isinstance(test, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
        isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    )
    hole = "({test})" if loose else "{test}"
    yield Replace(test, f"{words.is_first} and {hole}", because, {"test": test})


def _kept(once: Once, words: ProcessNames) -> Iterator[Finding]:
    for call in once.made:
        code = f"{{made}} if {words.is_first} else None"
        yield Replace(call, code, "rank 0 alone has it", {"made": call})
    for bar in once.bars:
        yield SetArgument(bar, "disable", f"{words.rank} != 0", "one bar, rank 0's")
