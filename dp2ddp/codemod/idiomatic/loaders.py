"""The loaders of a program, the loops that go through them, and which of both train."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from dp2ddp.codemod.idiomatic.looking import Made, is_true, trains, words_in
from dp2ddp.codemod.knowledge.derived import LOADER
from dp2ddp.codemod.looks.uses import bases_in_libraries
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, last_name
from dp2ddp.codemod.model.program import Program

ITERABLE = "torch.utils.data.IterableDataset"
ARGUMENTS = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn"),
    *("pin_memory", "drop_last"),
)
DECIDE = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}  # what is in a batch
PASSING = ("enumerate", "zip", "cycle", "islice", "track", "progress_bar")
EVALUATES = re.compile(r"(^|_)(val|valid|validation|test|eval|dev)", re.IGNORECASE)


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
        hands_on = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(place))
        return hands_on or trains(self.module, place)


class FoundLoader(Made):
    """A call that makes a DataLoader."""

    def argument(self, name: str) -> ast.expr | None:
        """What is given, unless it is None."""
        given = self.call.argument(ARGUMENTS.index(name), name)
        return None if isinstance(given, ast.Constant) and given.value is None else given

    @property
    def shuffles(self) -> bool:
        return is_true(self.argument("shuffle"))

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
    def refusal(self) -> str:
        """Why no share of its batches can be given out; empty where it can."""
        size, dataset = self.argument("batch_size"), self.argument("dataset")
        if self.argument("sampler") is not None or self.argument("batch_sampler") is not None:
            return "its own sampler draws them; cut them by rank"
        hidden = (self._words(each.value) for each in self.call.node.keywords if not each.arg)
        if dataset is None or any(map(DECIDE.intersection, hidden)):
            return "arguments that are not read here make them; give them sampler=DistributedSampler(dataset)"
        if size is None or isinstance(size, ast.Constant) and size.value == 1:
            return "one sample each; give each rank its share, sampler=DistributedSampler(dataset)"
        origins = self.module.program.flow.origins(self.module, dataset)
        made = ((home, home.name(each.func)) for home, each in origins if isinstance(each, ast.Call))
        if any(ITERABLE in bases_in_libraries(*each) for each in made):
            return "their data set iterates; let each rank take [rank::world_size] of what it yields"
        return ""

    def _words(self, node: ast.expr) -> set[str]:
        """The keywords that `**options` may give, as far as the text says them."""
        origins = self.module.program.flow.origins(self.module, node)
        parts = (part for _, origin in origins for part in ast.walk(origin))
        return {
            str(each.value if isinstance(each, ast.Constant) else getattr(each, "arg", "")) for each in parts
        }

    @property
    def is_shared(self) -> bool:
        return self.trains and not self.refusal


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
    if isinstance(value, ast.Call) and _is_passing(value):
        yield from (shown for each in value.args for shown in _shown(module, each))
    elif (
        isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        or module.name(getattr(node, "func", None)) == LOADER
    ):
        yield node


def _is_passing(node: ast.Call) -> bool:
    """Whether a call gives on what it is given: `tqdm(loader)`."""
    return last_name(node.func) in PASSING or any("tqdm" in word.lower() for word in words_in(node.func))
