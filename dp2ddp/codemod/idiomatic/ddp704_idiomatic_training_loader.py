"""Give each rank its own part of the training data.

The loader whose batches train gets `sampler=DistributedSampler(dataset)`, loses `shuffle=`, and its batch size is
divided by the number of ranks, so that all ranks together take the batch they took before. A sampler that shuffles
is told each epoch's number by `loader.sampler.set_epoch(epoch)`; where none is in sight, it counts on.
`drop_last=True` is the sampler's as well.

Every rank would train on the same samples, W times as many in all.

The order is another than before, and so the training is: the report says in what. Where no share can be given out
(samplers of one's own, data sets that iterate, batches made by hand), every rank trains on the whole batch, and a
comment says where to cut.

torch/utils/data/distributed.py; docs/semantics.md#order; docs/idiomatic.md.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.loaders import FoundLoader, Loop, loaders_of, loops_of
from dp2ddp.codemod.idiomatic.looking import is_true
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.derived import LOADER
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, diff

BECAUSE = "each rank loads its own samples; all ranks together take the batch they took before"
ORDER = "another order in each epoch, the same on all ranks"
UNSEEN = "call its sampler.set_epoch(epoch) before each pass, or all passes have the same order"
READ_ELSEWHERE = (
    "a rank's batches have 1/W of {} rows: it is read elsewhere, too; divide it there where it means rows"
)
SHOWS = ("print", "info", "format", "warning", "debug", "add_argument")
BY_HAND = "every rank trains on the whole batch here; give each its share, batch[rank::world_size]"
OWN_LOADER = (
    "every rank loads whole batches here; give super().__init__ batch_size // world size and a "
    "DistributedSampler of what it samples"
)
DATASETS = ("train_dataset", "train_set", "training_data")
SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript)
EPOCH = re.compile(
    r"(i_|cur_?|current_|num_)?(ep|epoch|epoch_?(id|idx|index|num|number|nr|no|i))$", re.IGNORECASE
)


class TrainingLoader(Rule):
    nodes = ("Arg", "BaseStatement", "Integer")
    examples = (
        diff("""
              import torch
              from torch.utils.data import DataLoader
              from torch.utils.data.distributed import DistributedSampler
              net = torch.nn.DataParallel(net)
            - loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=4)
            + loader = DataLoader(data, batch_size=64 // world_size, sampler=DistributedSampler(data), num_workers=4)
            + # dp2ddp: each rank gets whole batches: its own sampler draws them; cut them by rank
              balanced = DataLoader(data, batch_size=64, sampler=Balanced(data))
              for epoch in range(10):
            +     loader.sampler.set_epoch(epoch)
                  for (x, y), (z, _) in zip(loader, balanced):
                      criterion(net(x) + net(z), y).backward()
        """),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            loader = DataLoader(data, batch_size=64)
            for x, y in loader:
                print(net(x))
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        loaders, loops = loaders_of(module.program), loops_of(module.program)
        kinds = ((home, each) for home in module.program.modules for each in home.all(ast.ClassDef))
        own = [(home, each) for home, each in kinds if LOADER in map(home.name, each.bases)]
        for loader in (each for each in loaders if each.module is module and each.trains):
            if loader.is_shared:
                yield from _shared_out(loader)
                yield from _said(loader)
            else:
                yield remark(module, loader.call.node, f"each rank gets whole batches: {loader.refusal}")
        for loop, through in loops.items():
            reshuffled = [each for each in through if each.is_shared and each.shuffles]
            if loop.module is module and loop.can_tell and reshuffled:
                yield _set_epoch(loop, is_alone=reshuffled == through)
        yield from (remark(module, each, OWN_LOADER) for home, each in own if home is module)
        if not own and not any(each.trains for each in loaders):
            backward = (each.node for each in module.calls if each.method == "backward")
            for node in dict.fromkeys(_loop_around(module, each) for each in backward):
                yield remark(module, node, BY_HAND)


def _loop_around(module: Module, node: ast.AST) -> ast.stmt:
    """The innermost loop around a backward pass; without one, its statement."""
    nearest = module.enclosing(node, *LOOPS, *FUNCTIONS)
    return nearest if isinstance(nearest, LOOPS) else module.statement(node)


def _shared_out(loader: FoundLoader) -> Iterator[Finding]:
    module, call, words = loader.module, loader.call.node, words_of(loader.module)
    dataset, size = loader.argument("dataset"), loader.argument("batch_size")
    assert dataset is not None
    assert size is not None
    name = module.text(dataset)
    if not isinstance(dataset, (ast.Name, ast.Attribute, ast.Subscript)):
        name = next(each for each in DATASETS if each not in words.taken)
        indent = " " * module.statement(dataset).col_offset
        text = module.text(dataset).replace(f"\n{indent}", "\n")
        yield InsertBefore(module.statement(call), f"{name} = {text}", BECAUSE, False)
        yield Replace(dataset, name, BECAUSE)
    code = "{size}" if isinstance(size, SIMPLE) else "({size})"
    yield Replace(size, f"{code} // {words.world_size}", BECAUSE, {"size": size})
    sampler = f"{words['DistributedSampler']}({', '.join((name, *_settings(loader)))})"
    if shuffle := loader.call.keyword("shuffle"):
        yield Replace(shuffle, f"sampler={sampler}", BECAUSE)
        return
    if given := loader.call.argument(2):
        yield Replace(given, "False", BECAUSE)
    yield SetArgument(call, "sampler", sampler, BECAUSE)


def _settings(loader: FoundLoader) -> Iterator[str]:
    shuffle, drop = loader.argument("shuffle"), loader.argument("drop_last")
    if not loader.shuffles:
        yield "shuffle=False"
    elif not isinstance(shuffle, ast.Constant) and shuffle is not None:
        yield f"shuffle={loader.module.text(shuffle)}"
    if drop is not None and is_true(drop):
        yield f"drop_last={loader.module.text(drop)}"


def _said(loader: FoundLoader) -> Iterator[Finding]:
    """Comments on what is not seen to be told its epoch, and on a batch size that is read elsewhere, too."""
    module, size = loader.module, loader.argument("batch_size") or loader.call.node
    loops = loops_of(module.program).items()
    if loader.shuffles and not any(loop.can_tell and loader in each for loop, each in loops):
        yield remark(module, loader.call.node, UNSEEN)
    if isinstance(size, (ast.Name, ast.Attribute)) and _is_read_elsewhere(module.program, last_name(size)):
        yield remark(module, loader.call.node, READ_ELSEWHERE.format(module.text(size)))


def _is_read_elsewhere(program: Program, size: str) -> bool:
    """Whether a batch size is read where no loader is made, and it is not just shown."""
    for module in program.modules:
        for node in (each for each in module.by_word.get(size, ()) if isinstance(each.ctx, ast.Load)):
            calls = {last_name(each.func) for each in module.around(node) if isinstance(each, ast.Call)}
            if calls.isdisjoint((*SHOWS, "DataLoader")):
                return True
    return False


# --- epochs


def _set_epoch(loop: Loop, is_alone: bool) -> Finding:
    """`set_epoch` before the loop, by the number of the epoch that is in sight, or else by counting on."""
    module, loader = loop.module, loop.module.text(loop.shown)
    line = f"{loader}.sampler.set_epoch({_epoch(module, loop.shown) or f'{loader}.sampler.epoch + 1'})"
    if not is_alone:
        line = f"if isinstance({loader}.sampler, {words_of(module)['DistributedSampler']}):\n    {line}"
    return InsertBefore(module.statement(loop.shown), line, ORDER, apart=False)


def _epoch(module: Module, node: ast.AST) -> str | None:
    """The variable of a loop around a statement that counts epochs, or a parameter of that name."""
    for each in module.around(node):
        if isinstance(each, ast.For) and EPOCH.fullmatch(getattr(each.target, "id", "")):
            if node not in ast.walk(each.iter):
                return last_name(each.target)
        elif isinstance(each, ast.FunctionDef):
            return next((given.arg for given in each.args.args if EPOCH.fullmatch(given.arg)), None)
    return None
