"""DDP704: the loader that trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, Import, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.idiomatic.loading import (
    ITERABLE,
    Loading,
    epoch_of,
    is_complete,
    is_single_pass,
    read_loaders,
    unknown_argument,
)
from dp2ddp.codemod.idiomatic.process_names import SAMPLERS, ProcessNames, statement_of
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

EXACT = "take the exact style"
SAMPLER = "DistributedSampler"


class TrainingLoader(Rule):
    """Give each rank its own part of the training data.

    ## What it does
    The loader whose batches train gets `sampler=DistributedSampler(dataset)`, loses `shuffle=`, and its batch size is
    divided by the number of ranks, so that all ranks together take the batch they took before. A sampler that shuffles
    is told each epoch's number by `loader.sampler.set_epoch(epoch)`. `drop_last=True` is the sampler's as well.

    ## Why
    Every rank would train on the same samples, W times as many in all.

    ## Safety
    The order is another than before, and so the training is: the report says in what. Samplers and batch samplers of
    one's own, iterable data sets, loaders that are read with next() or in a way that is not followed are hazards.

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
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64 // world_size, sampler=DistributedSampler(data), num_workers=4)
                for epoch in range(10):
                    loader.sampler.set_epoch(epoch)
                    for x, y in loader:
                        loss = criterion(net(x), y)
                        loss.backward()
            """,
        ),
        Flags(
            before="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64, sampler=Balanced(data))
                for x, y in loader:
                    loss = criterion(net(x), y)
                    loss.backward()
            """,
            message="sampler",
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            loader = DataLoader(data, batch_size=64)
            for x, y in loader:
                loss = criterion(net(x), y)
                loss.backward()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        loaders = read_loaders(facts)
        for loading in loaders:
            if loading.trains:
                yield from _convert(facts, loading)
        if facts.is_entry and not any(loading.trains for loading in loaders):
            yield Hazard(
                facts.wraps[0].call.node if facts.wraps else facts.script.tree.body[0],
                "no loop over a DataLoader is seen that trains: a tutorial has nothing to share out",
                f"{EXACT}: it takes batches wherever they come from",
            )


def _convert(facts: Facts, loading: Loading) -> Iterator[Finding]:
    """The file that makes the loader gets its edits; the one with the loops over epochs the set_epoch."""
    reason = next(_refusals(facts, loading), None)
    if reason is not None:
        if loading.script is facts.script:
            yield Hazard(loading.call.node, reason, EXACT)
        return
    if loading.script is facts.script:
        yield from _share_out(facts, loading)
    if loading.shuffles:
        for loop in loading.trains:
            epoch = epoch_of(facts, loading, loop)
            if epoch is not None and facts.modules.home[epoch.before] is facts.script:
                line = f"{epoch.loader}.sampler.set_epoch({epoch.number})"
                yield InsertBefore(
                    epoch.before, line, "another order in each epoch, the same on all ranks", apart=False
                )


def _refusals(facts: Facts, loading: Loading) -> Iterator[str]:
    script = loading.script
    if not is_complete(loading):
        yield f"the loader's {unknown_argument(loading)} decides what is in a batch"
    if loading.dataset is None:
        yield "the loader's data set is not among its arguments"
    if (
        loading.batch_size is None
        or literal(loading.batch_size) in (1, None)
        and _is_literal(loading.batch_size)
    ):
        yield "the loader's batches are of one sample, or none: they cannot be divided by the number of ranks"
    if _is_iterable(facts, loading):
        yield "an iterable data set goes through all its samples on every rank"
    if loading.others:
        yield f"the loader that trains is also read where nothing trains ({facts.program.where(loading.others[0])})"
    if loading.odd:
        yield f"the loader is used in a way that is not followed ({facts.program.where(loading.odd[0])})"
    if not loading.shuffles:
        return
    if literal(loading.shuffle) is not True and not isinstance(loading.shuffle, (ast.Name, ast.Attribute)):
        yield "whether the loader shuffles is not told in one word"
    for loop in loading.trains:
        if epoch_of(facts, loading, loop) is None and not is_single_pass(facts, loop):
            where = facts.program.where(loop)
            yield f"no loop over epochs is seen around {where}, in which the sampler could be told its epoch"
    if script.scopes.function(loading.call.node) is not None and _is_made_each_time(facts, loading):
        yield "the loader is made anew in a loop"


def _is_literal(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant)


def _is_made_each_time(facts: Facts, loading: Loading) -> bool:
    return any(
        isinstance(parent, (ast.For, ast.While))
        for parent in facts.program.scopes.ancestors(loading.call.node)
    )


def _is_iterable(facts: Facts, loading: Loading) -> bool:
    made = loading.script.scopes.value(loading.dataset)
    if not isinstance(made, ast.Call):
        return False
    if loading.script.scopes.name(made.func) == ITERABLE:
        return True
    return facts.modules.has_base(loading.script, made.func, (ITERABLE,))


def _share_out(facts: Facts, loading: Loading) -> Iterator[Finding]:
    words, call, dataset, size = ProcessNames(facts), loading.call, loading.dataset, loading.batch_size
    assert dataset is not None
    assert size is not None
    because = "each rank loads its own samples; all ranks together take the batch they took before"
    name = facts.script.text(dataset)
    if not isinstance(dataset, (ast.Name, ast.Attribute)):
        name = _free_name(facts)
        yield InsertBefore(
            statement_of(facts, call.node), f"{name} = {_moved(facts, dataset)}", because, apart=False
        )
        yield Replace(dataset, name, because)
    whole = isinstance(size, (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript))
    yield Replace(
        size,
        f"{{size}} // {words.world}" if whole else f"({{size}}) // {words.world}",
        because,
        {"size": size},
    )
    sampler = f"{SAMPLER}({', '.join((name, *_settings(facts, loading)))})"
    shuffle = call.keyword("shuffle")
    if shuffle is not None:
        yield Replace(shuffle, f"sampler={sampler}", because)
    else:
        if loading.shuffle is not None:
            yield DropArgument(loading.shuffle, call.node, because)
        yield SetArgument(call.node, "sampler", sampler, because)
    yield Import(SAMPLERS, None, because, name=SAMPLER)
    yield from words.imports(because)


def _settings(facts: Facts, loading: Loading) -> Iterator[str]:
    shuffle, drop = loading.shuffle, loading.drop_last
    if shuffle is None or literal(shuffle) is False:
        yield "shuffle=False"
    elif literal(shuffle) is not True:
        yield f"shuffle={facts.script.text(shuffle)}"
    if drop is not None and literal(drop) is not False:
        yield f"drop_last={facts.script.text(drop)}"


def _free_name(facts: Facts) -> str:
    names = ("train_dataset", "train_set", "training_data", "dataset_to_train")
    return next(name for name in names if name not in facts.names.used)


def _moved(facts: Facts, node: ast.expr) -> str:
    """The text of an expression that moves to a line above: its other lines keep their place in the block."""
    indent = " " * statement_of(facts, node).col_offset
    first, *rest = facts.script.text(node).split("\n")
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])
