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
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from dp2ddp.codemod.edits import Finding, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.looking import Made, trains
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.derived import LOADER
from dp2ddp.codemod.looks.uses import bases_in_libraries, may_be_true
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, constant, inside, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, diff

ITERABLE = "torch.utils.data.IterableDataset"
ARGUMENTS = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn"),
    *("pin_memory", "drop_last"),
)
DECIDE = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}  # what is in a batch
NUMBERS = ("len", "range")
EVALUATES = re.compile(r"(^|_)(val|valid|validation|test|eval|dev)", re.IGNORECASE)
BECAUSE = "each rank loads its own samples; all ranks together take the batch they took before"
ORDER = "another order in each epoch, the same on all ranks"
UNSEEN = "call its sampler.set_epoch(epoch) before each pass, or all passes have the same order"
READ_ELSEWHERE = (
    "a rank's batches have 1/W of {} rows: it is read elsewhere, too; divide it there where it means rows"
)
SHOWS = ("print", "info", "format", "warning", "debug", "add_argument")
WHOLE = "each rank gets whole batches: give it its share (DistributedSampler, or batch[rank::world_size])"
DATASETS = ("train_dataset", "train_set", "training_data")
SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript)
EPOCH = re.compile(
    r"(i_|cur_?|current_|num_)?(ep|epoch|epoch_?(id|idx|index|num|number|nr|no|i))$", re.IGNORECASE
)


class TrainingLoader(Rule):
    examples = (
        diff("""
              import torch
              from torch.utils.data import DataLoader
              from torch.utils.data.distributed import DistributedSampler
              net = torch.nn.DataParallel(net)
            - loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=4)
            + loader = DataLoader(data, batch_size=64 // world_size, sampler=DistributedSampler(data), num_workers=4)
            + # dp2ddp: each rank gets whole batches: give it its share (DistributedSampler, or batch[rank::world_size])
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
        for loader in (each for each in loaders_of(module.program) if each.module is module and each.trains):
            if loader.is_shared:
                yield from _shared_out(loader)
                yield from _said(loader)
            else:
                yield remark(module, loader.call.node, WHOLE)
        for loop, through in loops_of(module.program).items():
            reshuffled = [each for each in through if each.is_shared and each.shuffles]
            if loop.module is module and loop.can_tell and reshuffled:
                yield _set_epoch(loop, is_alone=reshuffled == through)
        yield from (remark(module, node, WHOLE) for node in _made_elsewhere(module))


@dataclass(frozen=True, eq=False)
class Loop:
    """Where batches are taken: a `for`, or the call of `iter`; `shown` is the loader as it is written there."""

    module: Module
    node: ast.AST
    shown: ast.expr

    @property
    def can_tell(self) -> bool:
        """Whether it trains, and can tell a sampler the epoch: nobody tells that of `for x in DataLoader(...)`."""
        return self.trains and not isinstance(self.shown, ast.Call)

    @cached_property
    def trains(self) -> bool:
        around = self.module.enclosing(self.node, *LOOPS, *FUNCTIONS) or self.module.tree
        place = self.node if isinstance(self.node, LOOPS) else around
        return any(inside(place, ast.Yield, ast.YieldFrom)) or trains(self.module, place)


class FoundLoader(Made):
    """A call that makes a DataLoader."""

    def argument(self, name: str) -> ast.expr | None:
        """What is given, unless it is None."""
        given = self.call.argument(ARGUMENTS.index(name), name)
        return None if constant(given) is None else given

    @property
    def shuffles(self) -> bool:
        return may_be_true(self.argument("shuffle"))

    @cached_property
    def trains(self) -> bool:
        """Whether a loop over it trains; of one that nobody is seen to go through, whether it shuffles.

        Where one loop trains and evaluates (`run(loader, is_training)`), the loaders that shuffle are those that train.
        """
        through = {loop: each for loop, each in loops_of(self.module.program).items() if self in each}
        evaluates = any(map(EVALUATES.search, self.names))
        if not through or evaluates:
            return self.shuffles and not evaluates
        training = [each for loop, each in through.items() if loop.trains]
        return bool(training) and (self.shuffles or not any(other.shuffles for other in chain(*training)))

    @cached_property
    def is_shared(self) -> bool:
        """Whether it trains, and a sampler can give out shares: it has none, and its data set has a length."""
        flow, size, dataset = self.module.program.flow, self.argument("batch_size"), self.argument("dataset")
        if not self.trains or self.argument("sampler") or self.argument("batch_sampler"):
            return False
        options = [each.value for each in self.call.node.keywords if not each.arg]
        if dataset is None or any(DECIDE & self._words(each) for each in options):
            return False
        if size is None or constant(size) == 1:
            return False
        makers = flow.makers(self.module, dataset)
        return not any(ITERABLE in bases_in_libraries(home, home.name(each)) for home, each in makers)

    def _words(self, options: ast.expr) -> set[str]:
        """The keywords that `**options` may give, as far as the text says them."""
        origins = self.module.program.flow.origins(self.module, options)
        parts = [part for _, origin in origins for part in inside(origin, ast.Constant, ast.keyword)]
        return {str(getattr(part, "arg", None) or getattr(part, "value", "")) for part in parts}


@lru_cache(maxsize=8)
def loaders_of(program: Program) -> tuple[FoundLoader, ...]:
    """Every loader."""
    return tuple(FoundLoader(module, call) for module, call in program.calls if call.name == LOADER)


@lru_cache(maxsize=8)
def loops_of(program: Program) -> dict[Loop, list[FoundLoader]]:
    """The loops through loaders, with the loaders that come to each."""
    loops = (loop for module in program.modules for loop in _loops(module))
    through = {
        loop: [each for each in loaders_of(program) if each.is_meant(loop.module, loop.shown)]
        for loop in loops
    }
    return {loop: loaders for loop, loaders in through.items() if loaders}


def _loops(module: Module) -> Iterator[Loop]:
    for node in module.all(ast.For):
        if "loader" not in last_name(node.target).lower():  # of several, one after the other
            yield from (Loop(module, node, shown) for shown in _shown(module, node.iter))
    for call in module.calls:
        if call.name == "builtins.iter" and call.node.args:
            yield Loop(module, call.node, call.node.args[0])


def _shown(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """What is gone through: without enumerate, tqdm and zip, also where `bar = tqdm(loader)` stands above."""
    value = module.value(node)
    if not isinstance(node, ast.Call) or module.name(node.func) == LOADER:
        yield node
    if (
        isinstance(value, ast.Call)
        and module.name(value.func) != LOADER
        and last_name(value.func) not in NUMBERS
    ):
        yield from (shown for each in value.args for shown in _shown(module, each))


def _made_elsewhere(module: Module) -> Iterator[ast.AST]:
    """Where no loader is seen to train: the loaders of a class of the program's, or the loops that train."""
    program = module.program
    classes = [(home, each) for home in program.modules for each in home.all(ast.ClassDef)]
    own = {each: home for home, each in classes if LOADER in map(home.name, each.bases)}
    yield from (each for each, home in own.items() if home is module)
    if not own and not any(each.trains for each in loaders_of(program)):
        backward = (each.node for each in module.calls if each.method == "backward")
        yield from dict.fromkeys(
            module.enclosing(each, *LOOPS) or module.statement(each) for each in backward
        )


def _shared_out(loader: FoundLoader) -> Iterator[Finding]:
    module, call, words = loader.module, loader.call.node, words_of(loader.module)
    dataset, size = loader.argument("dataset"), loader.argument("batch_size")
    assert dataset is not None
    assert size is not None
    name = module.text(dataset)
    if not isinstance(dataset, (ast.Name, ast.Attribute, ast.Subscript)):
        name = next((each for each in DATASETS if each not in module.all_bindings), f"{DATASETS[0]}_")
        indent = " " * module.statement(dataset).col_offset
        text = module.text(dataset).replace(f"\n{indent}", "\n")
        yield InsertBefore(module.statement(call), f"{name} = {text}", BECAUSE, apart=False)
        yield Replace(dataset, name, BECAUSE)
    code = "{size}" if isinstance(size, SIMPLE) else "({size})"
    yield Replace(size, f"{code} // {words['world_size']}", BECAUSE, {"size": size})
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
    elif shuffle is not None and constant(shuffle) is ...:
        yield f"shuffle={loader.module.text(shuffle)}"
    if drop is not None and may_be_true(drop):
        yield f"drop_last={loader.module.text(drop)}"


def _said(loader: FoundLoader) -> Iterator[Finding]:
    """Comments on what is not seen to be told its epoch, and on a batch size that is read elsewhere, too."""
    module, size = loader.module, loader.argument("batch_size")
    loops = loops_of(module.program).items()
    if loader.shuffles and not any(loop.can_tell and loader in each for loop, each in loops):
        yield remark(module, loader.call.node, UNSEEN)
    uses = [(home, use) for home in module.program.modules for use in home.by_word.get(last_name(size), ())]
    if any(isinstance(use.ctx, ast.Load) and not _is_shown_or_given(home, use) for home, use in uses):
        yield remark(module, loader.call.node, READ_ELSEWHERE.format(ast.unparse(size) if size else ""))


def _is_shown_or_given(module: Module, size: ast.expr) -> bool:
    """Whether a batch size is read to make a loader, or to be shown."""
    calls = {last_name(each.func) for each in module.around(size) if isinstance(each, ast.Call)}
    return not calls.isdisjoint((*SHOWS, "DataLoader"))


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
    for each, inner in module.steps(node):
        name = getattr(each.target, "id", "") if isinstance(each, ast.For) and inner in each.body else ""
        if EPOCH.fullmatch(name):
            return name
        if isinstance(each, ast.FunctionDef):
            return next((given.arg for given in each.args.args if EPOCH.fullmatch(given.arg)), None)
    return None
