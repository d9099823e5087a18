"""A script that uses DistributedDataParallel, and what the rules of the check ask of it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.codemod.knowledge.derived import LOADER
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.ours import JOINS
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import all_from, last_name, values_of
from dp2ddp.review.flow import Flow, Loop
from dp2ddp.review.own_file import Mention, OwnFile, literal, unmoved
from dp2ddp.review.rank_conditions import MAKES_GROUP, RankConditions

DDP = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
SAMPLERS = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")
COLLECTIVES = [
    f"torch.distributed.{name}"
    for name in words(
        "all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all all_to_all_single barrier broadcast",
        "broadcast_object_list gather gather_object monitored_barrier reduce reduce_scatter reduce_scatter_tensor",
        "scatter scatter_object_list",
    )
]
# Helpers of dp2ddp, which a script has that it converted; tests/review/test_converted.py holds these against them.
# Take a whole batch, the same on every rank: each runs its rows of it, and all get the outputs of all.
WRAPPERS = words(
    "WholeBatchDDP WholeBatchParallel WholeBatchSharingErrors WholeBatch WholeBatchInParts WholeBatchPrinting",
    "WholeBatchWriting WholeBatchInTurns DataParallelOnRanks LibrarysOnRanks DataParallelInTurns LibrarysInTurns",
)
# All ranks must call these together, each of which waits for the others.
MEETINGS = words(
    "run_on_rank0 ask_rank0 make_on_rank0 make_handler_on_rank0 rank0_first save_on_rank0 open_on_rank0",
    "open_by_on_rank0 open_path_on_rank0 write_on_rank0",
)
LOADERS = {"Rank0Loader", "Rank0SamplerLoader"}
# Libraries that own the loop, the samplers or the output of ranks: what a script leaves out, they may do.
FRAMEWORKS = words(
    "accelerate catalyst colossalai composer deepspeed detectron2 fairseq horovod ignite lightning mmcv mmengine",
    "pytorch_lightning ray transformers",
)
SETS_UP = re.compile(
    "(?i)init|setup|set_up|dist|launch|ddp|prepare|print|logg|device|gpu|cuda|rank|comm|begin|start|config"
)
# Packages whose functions set no ranks up, and bring nothing of theirs together.
KNOWN = {
    *(*sys.stdlib_module_names, "builtins", "numpy", "torch", "torchvision"),
    *words("tqdm wandb mlflow neptune loguru rich matplotlib pandas scipy sklearn tensorboardX"),
}


@dataclass(frozen=True, eq=False)
class Wrap:
    """A model that is wrapped: by torch, or by a helper of a converted script, which takes whole batches."""

    call: Call
    flow: Flow
    helper: str = ""

    @property
    def model(self) -> ast.expr | None:
        return self.call.argument(0, "module")

    @property
    def is_torchs(self) -> bool:
        return (self.call.name or "").startswith("torch.")  # and none of apex, which sends no buffers

    @cached_property
    def mentions(self) -> set[ast.AST]:
        """What certainly is the wrapper."""
        return self.flow.spread(self.call.node)

    @cached_property
    def inside(self) -> set[ast.AST]:
        """What certainly is the model inside: `wrapper.module`, and the name that it has beside the wrapper's."""
        around = map(self.flow.module.parents.__getitem__, self.mentions)
        begin = [*self._beside(), *(each for each in around if getattr(each, "attr", "") == "module")]
        return self.flow.spread(*begin).union(begin)

    def _beside(self) -> Iterator[Mention]:
        """The model by its own name, and by names that it was given before: `raw = model`."""
        model, flow = unmoved(self.model), self.flow
        if not isinstance(model, (ast.Name, ast.Attribute)):
            return
        same = [
            each for each in flow.file.reads(model) if flow.file.text_of(each) == flow.file.text_of(model)
        ]
        others = flow.spread(*(each for each in same if flow.is_same(each, model)))
        is_again = flow.module.statement(self.call.node) in map(flow.module.statement, flow.stores(model))
        own = set() if is_again else {*same}  # `net = DistributedDataParallel(net)`
        mentions = (each for each in {*own, *others} if isinstance(each, Mention))
        yield from (each for each in mentions if flow.is_behind(each, self.call.node))


@dataclass(frozen=True, eq=False)
class Loader:
    """A DataLoader, and the DistributedSampler that it may be given, directly or by a name."""

    call: Call
    flow: Flow

    @property
    def shuffle(self) -> ast.expr | None:
        return self.call.argument(2, "shuffle")

    @cached_property
    def sampler(self) -> Call | None:
        given = self.call.argument(3, "sampler")
        made = (each for each in self.flow.file.made_by(given) if each.name in SAMPLERS)
        return next((each for each in made if self.flow.may_mean(given, each.node)), None)

    @cached_property
    def loops(self) -> list[Loop]:
        return [*self.flow.loops_over(self.call.node)]

    @property
    def trains(self) -> bool:
        return any(loop.trains for loop in self.loops)


class DDPScript:
    """One file, read alone: what it proves holds whatever imports it."""

    def __init__(self, file: OwnFile) -> None:
        self.file, self.module = file, file.module
        self.ranks = RankConditions(file)
        self.flow = Flow(file, self.ranks)

    @cached_property
    def wraps(self) -> tuple[Wrap, ...]:
        """The calls of DistributedDataParallel."""
        return tuple(Wrap(call, self.flow) for call in self.file.calls_of(*DDP))

    @cached_property
    def groups(self) -> tuple[Call, ...]:
        """The calls of init_process_group."""
        return tuple(self.file.calls_of(MAKES_GROUP))

    @cached_property
    def backends(self) -> set[object]:
        return {literal(group.argument(0, "backend")) for group in self.groups}

    @cached_property
    def loaders(self) -> tuple[Loader, ...]:
        """The calls of DataLoader, and of what a converted script has in its place."""
        helpers = (call for call, name in self.helper_calls.items() if name in LOADERS)
        return tuple(Loader(call, self.flow) for call in (*self.file.calls_of(LOADER), *helpers))

    @cached_property
    def collectives(self) -> tuple[Call, ...]:
        """The calls of functions of torch.distributed that all ranks of a group must make."""
        return tuple(self.file.calls_of(*COLLECTIVES))

    def calls_by_all(self, *names: str) -> Iterator[Call]:
        """The calls of functions with these names that every rank is certain to make."""
        return (call for call in self.file.calls_of(*names) if self.ranks.at(call.node).are_all)

    @cached_property
    def has_framework(self) -> bool:
        """Whether a library is imported that may do what the script leaves out."""
        return any(name.split(".")[0] in FRAMEWORKS for name in self.file.imports)

    @cached_property
    def trains_on_ranks(self) -> bool:
        """Whether this file itself wraps a model, and leaves the rest to nobody but torch."""
        return bool(self.wraps) and not self.has_framework

    def is_foreign(self, name: str | None) -> bool:
        """Whether a name is of another file, that is of no library we know."""
        name = name or "builtins"
        return name.split(".")[0] not in KNOWN and not self.module.program.is_local(name)

    @cached_property
    def sets_up_elsewhere(self) -> bool:
        """Whether a function of another file may set ranks up, or mute them: `utils.init_distributed_mode(args)`."""
        foreign = (call.name or "" for call in self.module.calls if self.is_foreign(call.name))
        return any(SETS_UP.search(name.rpartition(".")[2]) for name in foreign)

    @cached_property
    def all_wraps(self) -> tuple[Wrap, ...]:
        """Torch's wrappers, or of a script without these its helpers'."""
        return self.wraps or self.whole_batch_wraps

    def wrap_of(self, node: ast.AST) -> Wrap | None:
        """The wrapper that a mention certainly is."""
        return next((wrap for wrap in self.all_wraps if node in wrap.mentions), None)

    def wrap_around(self, node: ast.AST) -> Wrap | None:
        """The wrapper that a mention certainly is, or of a model that it is."""
        return next((wrap for wrap in self.all_wraps if node in wrap.inside | wrap.mentions), None)

    def wrap_of_part(self, part: ast.expr) -> Wrap | None:
        """The wrapper of a model that something behind it is a part of, where no later wrapper may wrap it anew."""
        wraps = map(self.wrap_around, self.flow.wholes(part))
        wrap = next(filter(None, wraps), None)
        others = (each.call.node for each in self.all_wraps if each is not wrap)
        return None if any(other.lineno > part.lineno for other in others) else wrap

    def is_optimizer(self, node: ast.AST | None) -> bool:
        """Whether it may be torch's optimizer, or a scheduler, for a wrapped model: what it is made of has such a name.

        What one rank alone makes is none.
        """
        made = (each for each in self.file.made_by(node) if (each.name or "").startswith("torch.optim."))
        own = (each.node for each in made if not self.ranks.at(each.node).are_one)
        given: list[ast.AST] = [part for each in own for value in values_of(each) for part in ast.walk(value)]
        parts = all_from(
            given, lambda part: (each for made in self.file.values(part) for each in ast.walk(made))
        )
        return not self._wrapped_words.isdisjoint(map(last_name, parts))

    @cached_property
    def _wrapped_words(self) -> set[str]:
        """What wrappers, and the models inside, are called."""
        targets = (self.flow.target(wrap.call.node) for wrap in self.all_wraps)
        models = (unmoved(wrap.model) for wrap in self.all_wraps)
        return set(map(last_name, (*targets, *models))) - {"", "self"}

    # --- converted scripts

    @cached_property
    def helper_calls(self) -> dict[Call, str]:
        """The calls of dp2ddp's helpers, with the names of these: the script was converted."""
        named = {call: self.file.helper(call.node.func) for call in self.module.calls}
        return {call: name for call, name in named.items() if name}

    @cached_property
    def is_converted(self) -> bool:
        """Whether the ranks join by dp2ddp's helpers, which also end them."""
        return not {*self.helper_calls.values()}.isdisjoint(JOINS)

    @cached_property
    def whole_batch_wraps(self) -> tuple[Wrap, ...]:
        """The calls of helpers that wrap a model, and take whole batches."""
        calls = self.certain_helpers(WRAPPERS)
        return tuple(Wrap(call, self.flow, self.helper_calls[call]) for call in calls)

    def certain_helpers(self, names: Collection[str]) -> tuple[Call, ...]:
        """Calls of helpers, where no other way of training on ranks is in sight: with it they may stand aside."""
        if self.wraps or self.groups or self.has_framework:
            return ()
        return tuple(call for call, name in self.helper_calls.items() if name in names)
