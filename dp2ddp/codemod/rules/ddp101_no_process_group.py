"""DDP101: the ranks join before the script does anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertBefore, Lift, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.pickled import loads_where_it_was
from dp2ddp.codemod.facts.visible import settings_in_functions
from dp2ddp.codemod.launch import world_of
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

TO_OWN_DEVICE = "to_own_device"


class NoProcessGroup(Rule):
    """Join the process group before anything random or device-dependent runs.

    ## What it does
    Puts `join_process_group()` before the first statement that does more than define: at module level, or first
    inside `if __name__ == "__main__":`. An assignment of `CUDA_VISIBLE_DEVICES` stays
    before it, also in a function that is called from there; one that comes later goes into the launch line.
    A script that calls torch.load without a map_location gets `join_process_group(map_location=to_own_device)`, which
    holds for all of them.

    ## Why
    Every rank runs the whole script. They have to know of each other, use a device each, and start from the same
    random states before the first number is drawn; and only one of them may speak.

    ## Safety
    Started by plain `python`, the script is a world of one and trains as it did on one device. In worker processes of
    a DataLoader the call does nothing.

    ## References
    docs/semantics.md#unseeded, docs/semantics.md#visible-devices, docs/semantics.md#printing.
    """

    code = "DDP101"
    name = "no-process-group"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torch import nn

                BATCH = 32

                # the model
                net = nn.DataParallel(nn.Linear(2, 2))
            """,
            after="""
                import torch
                from torch import nn

                BATCH = 32

                join_process_group()

                # the model
                net = nn.DataParallel(nn.Linear(2, 2))
            """,
        ),
        Rewrites(
            before="""
                import os
                import torch
                os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

                def main():
                    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))

                if __name__ == "__main__":
                    main()
            """,
            after="""
                import os
                import torch
                os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

                def main():
                    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))

                if __name__ == "__main__":
                    join_process_group()
                    main()
            """,
        ),
        Rewrites(
            before="""
                import os
                import torch

                def main(gpus):
                    print("using", gpus)
                    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
                    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))

                if __name__ == "__main__":
                    main("0,1")
            """,
            after="""
                import os
                import torch

                def main(gpus):
                    print("using", gpus)
                    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
                    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))

                if __name__ == "__main__":
                    join_process_group()
                    main("0,1")
            """,
        ),
        Rewrites(
            before="""
                import torch
                mean = torch.Tensor([0.5])
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            """,
            after="""
                import torch
                mean = torch.Tensor([0.5])

                join_process_group()

                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                net.load_state_dict(torch.load("best.pt"))
            """,
            after="""
                import torch

                join_process_group(map_location=to_own_device)

                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                net.load_state_dict(torch.load("best.pt"))
            """,
        ),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        entry = facts.entry
        if not facts.is_entry and facts.all_wraps:
            yield from map(_too_late, settings_in_functions(facts.script))
        if not facts.is_entry or facts.is_converted or not (facts.all_wraps or facts.hides_wraps):
            return
        if entry.first_act is None:
            yield _nothing_runs(facts)
            return
        because = "each rank joins before anything random or on a device"
        calls = [f"{facts.names.helper(name)}()" for name in strategy.joining]
        if any(_loads(file) for file in facts.files):
            why = "torch.load puts what was saved on the first GPU on the rank's own"
            calls[0] = (
                f"{facts.names.helper(strategy.joining[0])}(map_location={facts.names.helper(TO_OWN_DEVICE)})"
            )
            yield Lift(TO_OWN_DEVICE, why)
        yield InsertBefore(entry.first_act, "\n".join(calls), because)
        yield from (Lift(name, because) for name in strategy.joining)
        if entry.visible_devices is not None and world_of(facts) is None:
            yield Note(
                entry.visible_devices,
                "start one rank for each device that CUDA_VISIBLE_DEVICES is set to here",
            )
        if entry.late_devices is not None:
            yield _too_late(entry.late_devices)


def _loads(file: Facts) -> bool:
    loads = loads_where_it_was(file.script, file.all_wraps)
    return any(file.reach.holds(file.script, call.node) for call in loads)


def _too_late(setting: ast.stmt) -> Note:
    return Note(
        setting,
        "CUDA_VISIBLE_DEVICES is set here after the ranks have chosen their devices, so it does nothing any more: "
        "set it where the script is started (CUDA_VISIBLE_DEVICES=0,1 torchrun ...)",
    )


def _nothing_runs(facts: Facts) -> Hazard:
    return Hazard(
        facts.wraps[0].call.node if facts.wraps else facts.script.tree.body[0],
        "nothing runs when this file is started, so there is no place where the ranks could join",
        "convert the script that starts the training",
    )
