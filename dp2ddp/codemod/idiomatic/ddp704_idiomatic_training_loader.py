"""DDP704: the loader that trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import InsertAfter, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.epochs import epochs_of
from dp2ddp.codemod.idiomatic.loaders import LOADER, FoundLoader, Loop, loaders_of
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark, words_of
from dp2ddp.codemod.idiomatic.sizes import origins_of
from dp2ddp.codemod.idiomatic.training import backward_loops
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched

BECAUSE = "each rank loads its own samples; all ranks together take the batch they took before"
SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript)


class TrainingLoader(IdiomaticRule):
    """Give each rank its own part of the training data.

    ## What it does
    The loader whose batches train gets `sampler=DistributedSampler(dataset)`, loses `shuffle=`, and its batch size is
    divided by the number of ranks, so that all ranks together take the batch they took before. A sampler that shuffles
    is told each epoch's number by `loader.sampler.set_epoch(epoch)`. `drop_last=True` is the sampler's as well.

    ## Why
    Every rank would train on the same samples, W times as many in all.

    ## Safety
    The order is another than before, and so the training is: the report says in what. Where no share can be given out
    (samplers of one's own, data sets that iterate, batches made by hand), every rank trains on the whole batch, and a
    comment says where to cut.

    ## References
    torch/utils/data/distributed.py; docs/semantics.md#order; docs/idiomatic.md.
    """

    code = "DDP704"
    name = "idiomatic-training-loader"
    nodes = ("Arg", "BaseStatement", "Integer")
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader
                from torch.utils.data.distributed import DistributedSampler
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=4)
                for epoch in range(10):
                    for x, y in loader:
                        loss = criterion(net(x), y)
                        loss.backward()
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader
                from torch.utils.data.distributed import DistributedSampler
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64 // world_size, sampler=DistributedSampler(data), num_workers=4)
                for epoch in range(10):
                    loader.sampler.set_epoch(epoch)
                    for x, y in loader:
                        loss = criterion(net(x), y)
                        loss.backward()
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader
                loader = DataLoader(data, batch_size=64, sampler=Balanced(data))
                for x, y in loader:
                    criterion(net(x), y).backward()
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader
                # dp2ddp: each rank gets whole batches: its own sampler draws them; cut them by rank
                loader = DataLoader(data, batch_size=64, sampler=Balanced(data))
                for x, y in loader:
                    criterion(net(x), y).backward()
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            loader = DataLoader(data, batch_size=64)
            for x, y in loader:
                print(net(x))
        """),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        loaders = loaders_of(module.program)
        for loader in loaders:
            if loader.module is module and loader.trains:
                yield from _shared_out(loader) if loader.is_shared else _whole(loader)
        loops = {loop.node: loop for loader in loaders for loop in loader.loops if loop.trains}
        for loop in loops.values():
            through = [each for each in loaders if any(loop.node is other.node for other in each.loops)]
            reshuffled = [each for each in through if each.is_shared and each.shuffles]
            if reshuffled:
                yield from _set_epoch(module, loop, reshuffled, is_alone=reshuffled == through)
        for origin in origins_of(module.program).values():
            if origin.module is module and origin.behind is not None:
                code = f"{origin.text} //= {words_of(module).world_size}  # of each rank"
                yield Change(InsertAfter(origin.behind, code, BECAUSE), ("dist",))
        yield from _own_loaders(module)
        if not any(each.trains for each in loaders) and not any(
            map(list, map(_own_loaders, module.program.modules))
        ):
            for node in backward_loops(module):
                yield remark(
                    module,
                    node,
                    "every rank trains on the whole batch here; give each its share, batch[rank::world_size]",
                )


def _whole(loader: FoundLoader) -> Iterator[Finding]:
    text = f"each rank gets whole batches: {loader.refusal}"
    yield remark(loader.module, loader.call.node, text)


def _own_loaders(module: Module) -> Iterator[Finding]:
    """Classes that derive from DataLoader hand on what their users give them."""
    for each in module.all(ast.ClassDef):
        if any(module.name(base) == LOADER for base in each.bases):
            yield remark(
                module,
                each,
                "every rank loads whole batches here; give super().__init__ batch_size // world size and a "
                "DistributedSampler of what it samples",
            )


def _shared_out(loader: FoundLoader) -> Iterator[Finding]:
    module, call = loader.module, loader.call.node
    words, dataset, size = words_of(module), loader.argument("dataset"), loader.argument("batch_size")
    assert dataset is not None
    assert size is not None
    name = module.text(dataset)
    if not isinstance(dataset, (ast.Name, ast.Attribute, ast.Subscript)):
        name = next(
            each for each in ("train_dataset", "train_set", "training_data") if each not in words.taken
        )
        yield Change(
            InsertBefore(module.statement(call), f"{name} = {_moved(module, dataset)}", BECAUSE, False)
        )
        yield Change(Replace(dataset, name, BECAUSE))
    origins = origins_of(module.program)
    if last_word(size) not in origins:
        code = "{size}" if isinstance(size, SIMPLE) else "({size})"
        yield Change(Replace(size, f"{code} // {words.world_size}", BECAUSE, {"size": size}), ("dist",))
    sampler = f"{words['DistributedSampler']}({', '.join((name, *_settings(loader)))})"
    shuffle, given = loader.call.keyword("shuffle"), loader.call.argument(2)
    if shuffle is not None:
        yield Change(Replace(shuffle, f"sampler={sampler}", BECAUSE), ("DistributedSampler",))
        return
    if given is not None:
        yield Change(Replace(given, "False", BECAUSE))
    yield Change(SetArgument(call, "sampler", sampler, BECAUSE), ("DistributedSampler",))


def _settings(loader: FoundLoader) -> Iterator[str]:
    shuffle, drop = loader.argument("shuffle"), loader.argument("drop_last")
    if not loader.shuffles:
        yield "shuffle=False"
    elif not isinstance(shuffle, ast.Constant) and shuffle is not None:
        yield f"shuffle={loader.module.text(shuffle)}"
    if drop is not None and not (isinstance(drop, ast.Constant) and not drop.value):
        yield f"drop_last={loader.module.text(drop)}"


def _moved(module: Module, node: ast.expr) -> str:
    """The text of an expression that moves to a line above: its other lines keep their place in the block."""
    indent = " " * module.statement(node).col_offset
    first, *rest = module.text(node).split("\n")
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])


def _set_epoch(
    module: Module, loop: Loop, reshuffled: list[FoundLoader], is_alone: bool
) -> Iterator[Finding]:
    """`set_epoch` before the loop; where other loaders come through it too, before the calls that hand in this one."""
    epochs = list(epochs_of(loop, is_alone, {each.target for each in reshuffled}))
    for epoch in epochs:
        if epoch.module is module:
            line = f"{epoch.loader}.sampler.set_epoch({epoch.number})"
            why = "another order in each epoch, the same on all ranks"
            yield Change(InsertBefore(epoch.before, line, why, apart=False))
    if not epochs:
        for loader in reshuffled:
            if loader.module is module:
                text = "call its sampler.set_epoch(epoch) before each pass, or all passes have the same order"
                yield remark(module, loader.call.node, text)
