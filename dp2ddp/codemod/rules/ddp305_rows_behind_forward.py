"""DDP305: parts of the batch that are used behind the forward."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertAfter, InsertBefore, Lift
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class RowsBehindForward(Rule):
    """Gather what the script still uses of the batch behind the forward.

    ## What it does
    Adds `targets = gather_rows(targets)` behind the forward, where the loader gives each rank its own rows; before
    it, where one statement holds both: `loss = criterion(net(inputs), targets)`.

    ## Why
    The outputs are gathered, so the code behind the forward sees the whole batch; its targets have to be whole, too.

    ## Safety
    Only where every use of the batch in the loop can be listed; see DDP304.

    ## References
    SEMANTICS 15 to 22: any loss on the whole batch is right as it was written.
    """

    code = "DDP305"
    name = "rows-behind-forward"
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    inputs, targets = inputs.cuda(), targets.cuda()
                    outputs = net(inputs)
                    loss = criterion(outputs, targets)
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    inputs, targets = inputs.cuda(), targets.cuda()
                    outputs = net(inputs)
                    targets = gather_rows(targets)
                    loss = criterion(outputs, targets)
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    loss = criterion(net(inputs), targets)
                    seen += len(targets)
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    targets = gather_rows(targets)
                    loss = criterion(net(inputs), targets)
                    seen += len(targets)
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for step, (inputs, targets) in enumerate(loader):
                    outputs = net(inputs)
                    if step % 100 == 0:
                        print(step * len(inputs))
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for step, (inputs, targets) in enumerate(loader):
                    outputs = net(inputs)
                    if step % 100 == 0:
                        inputs = gather_rows(inputs)
                        print(step * len(inputs))
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
            for inputs, targets in loader:
                print("Outside: input size", inputs.size())
                outputs = net(inputs)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if strategy.join.value != "outputs" or facts.is_converted:
            return
        for wrap in facts.wraps[:1] if facts.flow.stopper else ():
            yield Hazard(
                wrap.call.node,
                f"join=outputs cannot be written: {facts.flow.stopper}",
                "use --join batch",
            )
        helper, because = (
            facts.names.helper("gather_rows"),
            "used behind the forward, where the outputs are whole",
        )
        for loop in facts.flow.loops:
            if loop.before:
                yield InsertBefore(loop.forward, _gathering(helper, loop.before), because)
                yield Lift("gather_rows", because)
            if loop.gathered:
                yield InsertAfter(loop.forward, _gathering(helper, loop.gathered), because)
                yield Lift("gather_rows", because)
            for reader, names in loop.gathered_within:
                yield InsertBefore(reader, _gathering(helper, names), because)
                yield Lift("gather_rows", because)


def _gathering(helper: str, names: tuple[str, ...]) -> str:
    told = ", ".join(names)
    return f"{told} = {helper}({told})" if len(names) == 1 else f"{told} = {helper}(({told}))"
