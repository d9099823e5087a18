"""The ranks' shares of the data overlap: some samples are trained on several times, others never.

Finds, for a `DistributedSampler` whose loader is trained on: `num_replicas=1` or a `rank` that is a number, under no
condition; a `seed`, or an argument of `set_epoch`, that a rank is part of; `set_epoch` where one rank alone comes by;
and data that were split or shuffled behind `seed(... + rank)`, or by a generator with such a seed. In a script that
dp2ddp converted, any such sampler that is given under no condition: its wrapper cuts the batches itself.

The sampler shuffles all the data on each rank, and takes every W-th sample. These shares fit together only where all
ranks shuffle alike: by the same seed and epoch. Otherwise nothing fails, and an epoch is as long as it should be.

Silent where a framework owns the loop, and where what was shuffled is broadcast before it is cut. Seeds that differ
from rank to rank are right for what is drawn for each sample, and are not found by themselves. In a converted script,
silent where it calls a collective itself.

https://github.com/mlcommons/training/pull/625, https://github.com/NVlabs/LongLive/issues/71,
https://github.com/TensorAuto/OpenTau/pull/498, https://github.com/huggingface/accelerate/issues/3520.
"""

import ast
import re

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, literal, values_of
from dp2ddp.review.made import Made

RANDOM_SPLIT = "torch.utils.data.random_split"
DRAWS = words(
    f"{RANDOM_SPLIT} torch.randperm random.shuffle random.sample numpy.random.shuffle",
    "numpy.random.permutation sklearn.model_selection.train_test_split",
)
OWN_GENERATOR = ("generator", "random_state")  # of a draw
SENDS = re.compile("broadcast|scatter|gather|reduce|sync|share|send")
WHOLE = "each rank takes all of the data"
SAME = "all ranks take the share of one"
DIFFERENT = "the ranks shuffle differently, and cut their shares out of that"
TWICE = "the data are cut twice, by this sampler and by the wrapper"


class SharesThatOverlap(CheckRule):
    message = "{what}: some samples are trained on several times, or others never"
    advice = "{how}"
    examples = corrected("""
        # shuffle differently
          from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(net)
        - sampler = DistributedSampler(data, seed=args.seed + dist.get_rank())
        + sampler = DistributedSampler(data, seed=args.seed)
          loader = DataLoader(data, batch_size=32, sampler=sampler)
          for epoch in range(10):
              sampler.set_epoch(epoch)
              for x, y in loader:
                  model(x, y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        for loader in (*script.loaders, *script.helper_loaders) if script.whole_batch_wraps else ():
            sampler = loader.certain_sampler
            if sampler is not None and loader.trains and not script.collectives:
                yield self.problem(sampler.node, what=TWICE, how="take it out, and let the loader shuffle")
        loaders = script.loaders if script.trains_on_ranks else ()
        for sampler in {loader.sampler: None for loader in loaders if loader.sampler and loader.trains}:
            what = _of_arguments(script, sampler)
            if what:
                yield self.problem(sampler.node, what=what, how="leave num_replicas, rank and seed out")
            for call in script.module.calls:
                if call.method == "set_epoch" and _is_told_apart(script, call, sampler):
                    yield self.problem(call.node, what=DIFFERENT, how="give all ranks the same epoch")
                if (
                    call.name in DRAWS
                    and _is_seeded_by_rank(script, call)
                    and _is_cut_by(script, call, sampler)
                ):
                    how = "give it a generator with the same seed on all ranks, or seed by rank behind it"
                    yield self.problem(call.node, what=DIFFERENT, how=how)


def _of_arguments(script: DDPScript, sampler: Call) -> str:
    """What is wrong with the share that a sampler is told to take."""
    seeds = script.file.values(sampler.argument(4, "seed"))
    if seeds and all(map(script.ranks.has_rank, seeds)):
        return DIFFERENT
    if any(isinstance(each, (ast.If, ast.IfExp)) for each in script.module.around(sampler.node)):
        return ""  # one process may train alone
    if literal(sampler.argument(1, "num_replicas")) == 1:
        return WHOLE
    return SAME if isinstance(literal(sampler.argument(2, "rank")), int) else ""


def _is_told_apart(script: DDPScript, call: Call, sampler: Call) -> bool:
    """Whether the sampler gets an epoch that differs from rank to rank, or on one rank alone."""
    owner = getattr(call.node.func, "value", None)
    is_of_loader = getattr(owner, "attr", "") in ("sampler", "batch_sampler")
    if not is_of_loader and sampler.node not in script.file.values(owner):
        return False
    return script.ranks.at(call.node).are_one or any(map(script.ranks.has_rank, values_of(call.node)))


def _is_seeded_by_rank(script: DDPScript, draw: Call) -> bool:
    """Whether the generator of a draw, or the last seeding above it in its function, is seeded by `... + rank`."""
    given = next((each.value for each in draw.node.keywords if each.arg in OWN_GENERATOR), None)
    if given is not None or draw.name == RANDOM_SPLIT and (given := draw.argument(2)):
        own = script.file.variable(given)  # `generator.manual_seed(rank)`
        told = (
            call.node
            for call in script.seedings
            if isinstance(call.node.func, ast.Attribute) and script.file.variable(call.node.func.value) == own
        )
        return any(map(script.ranks.has_rank, (*script.file.values(given), *told)))
    function = script.file.function_of(draw.node)
    above = (call.node for call in script.seedings if call.node.lineno < draw.node.lineno)
    seeds = [call for call in above if script.file.function_of(call) is function]
    return bool(seeds) and any(map(script.ranks.has_rank, values_of(seeds[-1])))


def _is_cut_by(script: DDPScript, draw: Call, sampler: Call) -> bool:
    """Whether a sampler is made of what a draw gives, or has shuffled in place, and nobody sends that to all ranks."""
    shuffled = [draw.node.args[0]] if (draw.name or "").endswith("shuffle") and draw.node.args else []
    made = Made(script, [draw.node, *(use for each in shuffled for use in script.flow.read(each, draw.node))])
    sent = any(SENDS.search(last_name(call.node.func)) for call in made.calls)
    return sampler.node in made.nodes and not sent
