"""DDP707: checkpoints that are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertBefore, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.idiomatic.reading import reads_after_writing
from dp2ddp.codemod.idiomatic.values import origins
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class LoadOnRanks(Rule):
    """Load a checkpoint to the rank's own GPU, when rank 0 has written it.

    ## What it does
    `torch.load(path)` without a map_location gets `map_location={"cuda:0": f"cuda:{local_rank}"}`. Before a file is
    read that the script may have written itself, `dist.barrier()` waits for rank 0. A wrapper that is saved whole is a
    hazard.

    ## Why
    What was saved on the first GPU would come to the first GPU on every rank; and a rank that is ahead would read a
    file that is not written yet.

    ## Safety
    All ranks come by the barrier: they decide alike (DDP711 sees to that).

    ## References
    pytorch.org/tutorials/intermediate/ddp_tutorial.html, "Save and Load Checkpoints"; docs/idiomatic.md.
    """

    code = "DDP707"
    name = "idiomatic-load"
    nodes = ("BaseStatement", "Call")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                net.load_state_dict(torch.load(args.resume))
                torch.save(net.state_dict(), "best.pth")
                net.load_state_dict(torch.load("best.pth"))
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                net.load_state_dict(torch.load(args.resume, map_location={"cuda:0": f"cuda:{local_rank}"}))
                torch.save(net.state_dict(), "best.pth")
                dist.barrier()
                net.load_state_dict(torch.load("best.pth", map_location={"cuda:0": f"cuda:{local_rank}"}))
            """,
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                torch.save({"net": net, "epoch": 3}, "best.pth")
            """,
            message="is saved whole",
        ),
        Untouched(
            'import torch\nnet = torch.nn.DataParallel(net)\nstate = torch.load("a.pt", map_location="cpu")'
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        words = ProcessNames(facts)
        yield from _whole_wrappers(facts)
        for call in facts.script.calls_of("torch.load"):
            if call.argument(1, "map_location") is None and all(
                keyword.arg for keyword in call.node.keywords
            ):
                place = f'{{"cuda:0": f"cuda:{{{words.local_rank}}}"}}'
                yield SetArgument(
                    call.node,
                    "map_location",
                    place,
                    "what was saved on the first GPU comes to the rank's own",
                )
        for statement in dict.fromkeys(reads_after_writing(facts)):
            because = "rank 0 has written it when the others read it"
            yield InsertBefore(statement, f"{words.dist}.barrier()", because, apart=False)
            yield from words.imports(because)


def _whole_wrappers(facts: Facts) -> Iterator[Hazard]:
    """`torch.save(net, path)`, `torch.save({"net": net}, path)`: the wrapper itself goes into the file."""
    for call in facts.script.calls_of("torch.save"):
        saved = origins(facts, call.node.args[0]) if call.node.args else []
        parts = [
            part for value in saved for part in (value.values if isinstance(value, ast.Dict) else [value])
        ]
        for part in (*parts, *call.node.args[:1]):
            if (
                isinstance(part, (ast.Name, ast.Attribute))
                and facts.program.variable(part) in facts.training.names
            ):
                yield Hazard(
                    call.node,
                    f"`{facts.script.text_of(part)}` is saved whole: the file would hold a DistributedDataParallel, "
                    "which only a process can load that has joined others",
                    "save its state_dict(), or take the exact style",
                )
                break
