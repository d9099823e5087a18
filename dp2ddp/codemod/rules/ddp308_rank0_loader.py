"""DDP308: loaders that rank 0 iterates for all ranks, by messages."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.choices import PLAIN
from dp2ddp.codemod.edits import Finding, Lift, PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import ONCE, Strategy


class Rank0Loader(Rule):
    """Load each batch once, in an ordinary script.

    ## What it does
    `DataLoader(...)` becomes `Rank0Loader(...)`: a DataLoader that rank 0 alone iterates, with its workers and its
    random numbers. All ranks get its batches. `MyLoader(...)`, of a class that is derived from DataLoader, becomes
    `load_on_rank0(MyLoader, ...)`.

    ## Why
    If every rank loaded them, each image would be read and augmented as many times as there are ranks. And one
    process draws what the one process of DataParallel drew, so that crops and flips are the same.

    ## Safety
    For the plain helpers, which are for batches of moderate size: they go from rank to rank by messages. Where
    samples are read from files, batches go by memory (DDP307). Batches that are parts of tensors in memory are made
    by every rank, and the loader stays as it is.

    ## References
    docs/semantics.md#batch-size, docs/semantics.md#order.
    """

    code = "DDP308"
    name = "rank0-loader"
    nodes = ("Attribute", "Name")
    tier = PLAIN
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader
                from torchvision.datasets import CIFAR10
                net = torch.nn.Linear(3072, 10)
                net = torch.nn.DataParallel(net)
                optimizer = torch.optim.SGD(net.parameters(), 0.1)
                loader = DataLoader(CIFAR10("data"), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
                    optimizer.step()
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader
                from torchvision.datasets import CIFAR10
                net = torch.nn.Linear(3072, 10)
                net = torch.nn.DataParallel(net)
                optimizer = torch.optim.SGD(net.parameters(), 0.1)
                loader = Rank0Loader(CIFAR10("data"), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
                    optimizer.step()
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torchvision.datasets import CIFAR10
                net = torch.nn.Linear(3072, 10)
                net = torch.nn.DataParallel(net)
                loader = torch.utils.data.DataLoader(CIFAR10("data"), batch_size=32)
                for inputs, targets in loader:
                    print(net(inputs).argmax(1).eq(targets).sum().item())
            """,
            after="""
                import torch
                from torchvision.datasets import CIFAR10
                net = torch.nn.Linear(3072, 10)
                net = torch.nn.DataParallel(net)
                loader = Rank0Loader(CIFAR10("data"), batch_size=32)
                for inputs, targets in loader:
                    print(net(inputs).argmax(1).eq(targets).sum().item())
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            net = torch.nn.Linear(2, 2)
            net = torch.nn.DataParallel(net)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(inputs), targets).backward()
                optimizer.step()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if strategy.data.value != ONCE or facts.is_converted:
            return
        because = "rank 0 makes each batch, as one process would"
        for call in facts.shared_loaders:
            if call.name == LOADER:
                helper = strategy.helper("share")
                yield Replace(call.node.func, facts.names.helper(helper), because)
            else:
                helper = "load_on_rank0"
                yield PassTo(call.node, facts.names.helper(helper), because)
            yield Lift(helper, "hands rank 0's batches to all ranks")
