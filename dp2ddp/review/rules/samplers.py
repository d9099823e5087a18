"""How the data are shared out, and gone through."""

import ast
import re
from collections.abc import Iterator
from itertools import filterfalse

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import inside, is_main_guard, last_name, values_of
from dp2ddp.review.check_rule import ON_RANKS, CheckRule, CheckWarning, DDPScript, Found, corrected
from dp2ddp.review.ddp_script import SAMPLERS, Loader
from dp2ddp.review.made import Made, own_numbers
from dp2ddp.review.own_file import literal

SHARES = re.compile(r"sampler|iterable|webdataset|dali|shard|prepare$|split_dataset", re.IGNORECASE)
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


class NoSetEpoch(CheckRule):
    """Every epoch has the same order: `set_epoch` is never called.

    Finds a `DistributedSampler` that shuffles, whose loader is iterated again and again to train, and no `set_epoch`
    anywhere.

    The sampler draws its order from `seed + epoch`, and `epoch` stays 0 until somebody sets it. So all epochs have one
    order, and a rank sees the same share of the data again and again, in the same batches.

    Silent where the sampler is made anew with a seed in each round, and where a framework owns the loop.

    https://github.com/pytorch/pytorch/issues/31771, https://github.com/yangkky/distributed_tutorial/issues/5.
    """

    code, name = "DDP601", "no-set-epoch"
    message = "set_epoch() is never called, so every epoch has the order of the first"
    advice = "call sampler.set_epoch(epoch) at the start of each epoch"
    examples = corrected("""
        # set_epoch
          model = DistributedDataParallel(model)
          sampler = DistributedSampler(data)
          loader = DataLoader(data, batch_size=32, sampler=sampler)
          for epoch in range(10):
        +     sampler.set_epoch(epoch)
              for x, y in loader:
                  model(x, y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        if script.has_framework or "set_epoch" in script.file.words:
            return
        for loader in script.loaders:
            if loader.sampler is None or not any(loop.trains and loop.repeats for loop in loader.loops):
                continue
            shuffle, seed = loader.sampler.argument(3, "shuffle"), loader.sampler.argument(4, "seed")
            is_made_anew = seed is not None and script.file.loop_around(loader.sampler.node) is not None
            if not is_made_anew and (shuffle is None or literal(shuffle) is True):
                yield self.problem(loader.sampler.node)


class MetricOfAShard(CheckRule):
    """An accuracy or a loss is counted over one rank's share of the data, and never brought together.

    Finds an evaluation loop over a loader with a `DistributedSampler` that adds numbers up, which are followed through
    names and functions of the file, and nowhere reduced nor gathered.

    Each rank sees 1 / W of the samples, so what rank 0 prints is the metric of its own share; and the sampler repeats
    samples until all shares are equally long, so that even the average of all ranks is not the metric of the data set.

    Silent where what gets them has `reduce`, `gather`, `metric`, `broadcast` or the like in its name, or is of another
    file, and where a framework owns the loop.

    https://github.com/pytorch/pytorch/issues/25162, https://github.com/Lightning-AI/pytorch-lightning/issues/4732.
    """

    code, name = "DDP602", "metric-of-a-shard"
    message = "counts this rank's share of the data only, and nothing brings the ranks' numbers together"
    advice = "all_reduce() sums and counts before dividing; or evaluate without a DistributedSampler"
    examples = corrected("""
        # share of the data
          model = DistributedDataParallel(model)
          loader = DataLoader(test_set, batch_size=32, sampler=DistributedSampler(test_set, shuffle=False))
          correct = torch.zeros(1)
          with torch.no_grad():
              for x, y in loader:
                  correct += (model(x).argmax(1) == y).sum().item()
        + dist.all_reduce(correct)
    """)

    def find(self, script: DDPScript) -> Found:
        for numbers in own_numbers(script) if not script.has_framework else ():
            added = (each for each in inside(numbers.loop.node, ast.AugAssign) if each.value in numbers.nodes)
            first = next((each for each in added if script.flow.is_without_gradient(each)), None)
            if first is not None and not numbers.loop.trains:  # else it evaluates another loader
                yield self.problem(first)
                return


class NoDistributedSampler(CheckWarning):
    """Every rank trains on all of the data.

    Finds a shuffling `DataLoader` without a sampler whose loop trains, in a file that makes a process group and wraps a
    model, and names no sampler at all; or makes a `DistributedSampler` of the same data and never gives it to a loader.

    An epoch has W times as many steps as it should, each on W batches of the same data set. The ranks' batches are even
    the same ones where all have the same seed, and then W GPUs do the work of one.

    Silent where anything else is called a sampler, the data set is iterable or asks for a rank, each rank seeds itself
    or takes its rows of a batch, or a framework owns the loop.

    https://github.com/openvla/openvla/issues/125, https://github.com/innnky/so-vits-svc/issues/70.
    """

    code, name = "DDP628", "no-distributed-sampler"
    start = ON_RANKS.replace(", DistributedSampler", "")
    message = "each rank loads all of the data: an epoch takes as long as on one GPU"
    advice = "give the loader a DistributedSampler, and leave shuffle to it"
    examples = corrected("""
        # all of the data
        + from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(net)
        - loader = DataLoader(data, batch_size=32, shuffle=True)
        + loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
          for x, y in loader:
              criterion(model(x), y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or not script.groups:
            return
        idle = {script.file.text_of(data) for data in _without_loader(script)}
        if script.file.says(SHARES) and not idle:
            return
        if any(map(script.ranks.may_ask, (each for call in seedings(script) for each in call.node.args))):
            return  # ranks draw different batches on purpose
        for loader in script.loaders:
            data = loader.call.argument(0, "dataset")
            if data is None or script.ranks.may_ask(data):
                continue
            if script.file.text_of(data) not in idle if idle else literal(loader.shuffle) is not True:
                continue
            items = (item for loop in loader.loops for item in inside(loop.node, ast.Subscript))
            cuts = any(script.ranks.may_ask(item.slice) for item in items)  # `x.chunk(world)[rank]`
            if loader.trains and not cuts:
                yield self.problem(loader.call.node)


def seedings(script: DDPScript) -> Iterator[Call]:
    """The calls that seed something, by their names."""
    return (call for call in script.module.calls if "seed" in last_name(call.node.func))


def _without_loader(script: DDPScript) -> Iterator[ast.expr]:
    """The data of samplers of which nothing but `set_epoch` is ever asked."""
    for sampler in script.file.calls_of(*SAMPLERS):
        data, uses = sampler.argument(0, "dataset"), script.flow.uses(sampler.node)
        is_kept = bool(uses) or isinstance(script.flow.target(sampler.node), ast.Name)
        around = [script.module.parents[use] for use in uses]
        if data and is_kept and all(getattr(each, "attr", "") == "set_epoch" for each in around):
            yield data


class SharesThatOverlap(CheckRule):
    """The ranks' shares of the data overlap: some samples are trained on several times, others never.

    Finds, for a `DistributedSampler` whose loader is trained on: `num_replicas=1` or a `rank` that is a number, under
    no condition; a `seed`, or an argument of `set_epoch`, that a rank is part of; `set_epoch` where one rank alone
    comes by; and data that were split or shuffled behind `seed(... + rank)`. In a script that dp2ddp converted, any
    such sampler that is given under no condition: its wrapper cuts the batches itself.

    The sampler shuffles all the data on each rank, and takes every W-th sample. These shares fit together only where
    all ranks shuffle alike: by the same seed and epoch. Otherwise nothing fails, and an epoch is as long as it should
    be.

    Silent where a framework owns the loop, and where what was shuffled is broadcast before it is cut. Seeds that differ
    from rank to rank are right for what is drawn for each sample, and are not found by themselves. In a converted
    script, silent where it calls a collective itself.

    https://github.com/mlcommons/training/pull/625, https://github.com/NVlabs/LongLive/issues/71,
    https://github.com/TensorAuto/OpenTau/pull/498, https://github.com/huggingface/accelerate/issues/3520.
    """

    code, name = "DDP633", "shares-that-overlap"
    message = "{what}: some samples are trained on several times, or others never"
    examples = corrected("""
        # shuffle differently
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
        for loader in script.loaders if script.whole_batch_wraps and not script.collectives else ():
            if loader.sampler and loader.trains and _is_certain(script, loader, loader.sampler):
                yield self.problem(
                    loader.sampler.node, what=TWICE, how="take it out, and let the loader shuffle"
                )
        loaders = script.loaders if script.trains_on_ranks else ()
        given = (loader.sampler for loader in loaders if loader.sampler and loader.trains)
        for sampler in {each.node: each for each in given}.values():
            what = _of_arguments(script, sampler)
            if what:
                yield self.problem(sampler.node, what=what, how="leave num_replicas, rank and seed out")
            for call in script.module.calls:
                if call.method == "set_epoch" and _is_told_apart(script, call, sampler):
                    yield self.problem(call.node, what=DIFFERENT, how="give all ranks the same epoch")
                is_apart = call.name in DRAWS and _is_seeded_by_rank(script, call)
                if is_apart and _is_cut_by(script, call, sampler):
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


def _is_certain(script: DDPScript, loader: Loader, sampler: Call) -> bool:
    """Whether a loader is given its sampler in every run: no other value, under no condition."""
    conditions = filterfalse(is_main_guard, script.file.around(sampler.node, ast.If))
    return len(script.file.values(loader.call.argument(3, "sampler"))) == 1 and not any(conditions)


def _is_told_apart(script: DDPScript, call: Call, sampler: Call) -> bool:
    """Whether the sampler gets an epoch that differs from rank to rank, or on one rank alone."""
    owner = getattr(call.node.func, "value", None)
    is_of_loader = getattr(owner, "attr", "") in ("sampler", "batch_sampler")
    if not is_of_loader and sampler.node not in script.file.values(owner):
        return False
    return script.ranks.at(call.node).are_one or any(map(script.ranks.has_rank, values_of(call.node)))


def _is_seeded_by_rank(script: DDPScript, draw: Call) -> bool:
    """Whether the last seeding above a draw in its function is by `... + rank`, and it has no generator of its own."""
    function = script.file.function_of(draw.node)
    above = (call.node for call in seedings(script) if call.node.lineno < draw.node.lineno)
    seeds = [call for call in above if script.file.function_of(call) is function]
    has_own = any(map(draw.keyword, OWN_GENERATOR)) or draw.name == RANDOM_SPLIT and draw.argument(2)
    return bool(seeds) and not has_own and any(map(script.ranks.has_rank, values_of(seeds[-1])))


def _is_cut_by(script: DDPScript, draw: Call, sampler: Call) -> bool:
    """Whether a sampler is made of what a draw gives, or has shuffled in place, and nobody sends that to all ranks."""
    shuffled = [draw.node.args[0]] if (draw.name or "").endswith("shuffle") and draw.node.args else []
    made = Made(script, [draw.node, *(use for each in shuffled for use in script.flow.read(each, draw.node))])
    sent = any(SENDS.search(last_name(call.node.func)) for call in made.calls)
    return sampler.node in made.nodes and not sent
