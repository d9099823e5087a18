"""Both runs draw the same random numbers, so that a port which draws its own can be compared all the same.

A hand-written port seldom shuffles as DataParallel's loader did (DistributedSampler has a generator of its own), and
its ranks are often seeded apart. That is another training, but perhaps an equally good one: with the numbers of the
reference in its place, nothing else may differ. DataParallel leaves the order of its batches; on a rank

- a DistributedSampler gives the rank's chunk of each of those batches, as DataParallel's scatter would have. How many
  samples it gives stays its own (padding, drop_last), and so does when it turns to another order: epoch after epoch
  only if the script calls set_epoch.
- a RandomSampler gives their order.

Before each forward in training all devices begin a stream that depends on the number of the forward and on the device.
What a sampler would have given itself is left behind, for comparison/aligned.py to look at: ranks that did not share
out each epoch among them are wrong, and no matter of luck.

Ranks begin with DataParallel's weights, too. An original without a seed, or a port that sets another one, begins with
other numbers of the same kind: that is no fault, and hides all that is. DataParallel leaves what all models hold before
its first forward in training; ranks take that over before theirs, if they agree on their own weights by then. Ranks
that do not are wrong, and stay so.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from torch.utils.data import dataloader as loaders

from dp2ddp.runtime.perturb.seeds import Epochs, plain_index
from dp2ddp.runtime.run_folder import write_whole
from dp2ddp.taps import Taps
from dp2ddp.trace import aligned_orders as orders
from dp2ddp.trace.aligned_orders import Batch, Dataset, Epoch, Order, Weights
from dp2ddp.trace.tensor_names import by_shortest_name, living_roots, named_tensors, tensor_tables
from dp2ddp.trace.tensors import as_bytes, as_kind_of, as_real, flat_of

# Any throughout: data sets, samplers and indices are the user's.
_SEED = 7_919  # of the devices' streams


def leave_order(folder: Path, taps: Taps) -> None:
    """In the process of DataParallel: write down each batch that a sampler gives, and what is trained on."""
    orders.begin(folder, orders.REFERENCE, orders.TRAINED)
    passes, trained = _Passes(), set[Dataset]()
    last: Any = None  # the data set whose batch was the last one that the script took

    def give(index: Any, iterator: Any) -> None:
        indices = [plain_index(each) for each in (index if iterator._auto_collation else [index])]
        if passes.can_name(iterator._dataset) and all(isinstance(each, int) for each in indices):
            orders.leave(folder / orders.REFERENCE, (passes.key(iterator._dataset), indices))

    def take(iterator: Any) -> None:
        nonlocal last
        last = iterator._dataset

    def forward(module: Any, inputs: Any) -> None:
        trains = module.training and torch.is_grad_enabled() and isinstance(module, DataParallel)
        if trains and passes.can_name(last) and passes.name(last) not in trained:
            trained.add(passes.name(last))
            orders.leave(folder / orders.TRAINED, passes.name(last))

    taps.before("__iter__", lambda loader: passes.epochs.begin(loader.dataset), DataLoader)
    taps.after("_next_index", give, loaders._BaseDataLoaderIter)
    taps.before("__next__", take, loaders._BaseDataLoaderIter)
    taps.on_undo(register_module_forward_pre_hook(forward).remove)


def take_order(folder: Path, taps: Taps) -> None:
    """On a rank: samplers give what DataParallel's gave."""
    given = _Orders(folder)
    for kind, give in ((DistributedSampler, given.share), (RandomSampler, given.whole)):
        taps.around("__iter__", partial(_giving, give), kind)


def _giving(give: Any, original: Any, sampler: Any) -> Iterator[Any]:
    return iter(give(sampler, list(original(sampler))))


class _Passes:
    """Which data set is meant, in words that hold in another process, and how often it has been iterated."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Dataset]] = {}  # by id
        self.epochs = Epochs()

    @staticmethod
    def can_name(dataset: Any) -> bool:
        """Whether it has a length: one that is iterated, or stands for a loader as fastai's does, has none."""
        return hasattr(dataset, "__len__")

    def name(self, dataset: Any) -> Dataset:
        """Its length, and a number among those of that length."""
        if id(dataset) not in self._known:
            length = len(dataset)
            ordinal = sum(name[0] == length for _, name in self._known.values())
            self._known[id(dataset)] = (dataset, (length, ordinal))
        return self._known[id(dataset)][1]

    def key(self, dataset: Any) -> Epoch:
        return (*self.name(dataset), max(self.epochs.of(dataset) - 1, 0))


class _Orders:
    """DataParallel's batches, for the samplers of a rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches = orders.read_batches(folder)
        self._passes = _Passes()
        self._epochs: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()

    def share(self, sampler: Any, own: list[Any]) -> list[Any]:
        """The indices that a DistributedSampler gives this rank in place of its own."""
        epochs = self._epochs.setdefault(sampler, {})
        epoch = epochs.setdefault(sampler.epoch, len(epochs))
        return self._instead(sampler.dataset, epoch, own, sampler.num_replicas, sampler.rank)

    def whole(self, sampler: Any, own: list[Any]) -> list[Any]:
        """The indices that a RandomSampler gives, for all rows, in place of its own."""
        self._passes.epochs.begin(sampler.data_source)
        epoch = self._passes.key(sampler.data_source)[2]
        return self._instead(sampler.data_source, epoch, own, 1, 0)

    def _instead(self, dataset: Any, epoch: int, own: list[Any], parts: int, part: int) -> list[Any]:
        key = (*self._passes.name(dataset), epoch)
        batches = self._batches.get(key)
        samples = tuple(plain_index(each) for each in own)
        orders.leave(self._folder / f"own-{os.getpid()}.jsonl", Order(key, parts, part, samples))
        if not batches:
            return own
        mine = [index for batch in batches for index in _chunk(batch, parts, part)]
        return (mine + mine)[: len(own)] if mine else own


def _chunk(batch: Batch, parts: int, part: int) -> Batch:
    """As torch.chunk: parts of ceil(rows / parts)."""
    size = -(-len(batch) // parts)
    return batch[part * size : (part + 1) * size]


class Streams:
    """The devices' streams at the beginning of each forward in training."""

    def __init__(self) -> None:
        self._forwards = 0

    def begin(self) -> None:
        for device, generator in enumerate(torch.cuda.default_generators):
            generator.manual_seed(_SEED + 1_000 * self._forwards + device)
        self._forwards += 1


_FILE = "weights.safetensors"  # DataParallel's; weights-RANK-ATTEMPT: a digest of what that rank began with
_TIMEOUT = 20.0  # seconds: a rank that never trains is not waited for
_LOOK = 0.001
_ATTEMPTS = 2  # a script may run its model once before it is wrapped


def leave_weights(folder: Path) -> None:
    """In the process of DataParallel."""

    def save(module: nn.Module) -> bool:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{place}:{name}": as_real(tensor).cpu().clone().contiguous()
            for place, (name, tensor) in enumerate(_tensors())
        }
        save_file(tensors, folder / _FILE)
        return True

    _before_training(save)


def take_weights(folder: Path, rank: int, world: int) -> None:
    """On a rank: take them over."""
    attempts = 0

    def take(module: nn.Module) -> bool:
        nonlocal attempts
        if attempts and not isinstance(module, DistributedDataParallel):
            return False
        attempts += 1
        if (folder / _FILE).exists() and _all_agree(folder, module, rank, world, attempts):
            taken = list(_copied(folder / _FILE))
            if rank == 0:
                orders.begin(folder, orders.TAKEN)
                for each in taken:
                    orders.leave(folder / orders.TAKEN, each)
            return True
        return attempts == _ATTEMPTS

    _before_training(take)


def _before_training(work: Callable[[nn.Module], bool]) -> None:
    """Do it before the first forward in training of a model, and again until it says that it is done."""

    def hook(module: nn.Module, inputs: Any) -> None:
        trains = module.training and torch.is_grad_enabled()
        if trains and any(each.requires_grad for each in module.parameters()):
            with torch.no_grad(), torch._C.DisableTorchFunction():
                if work(module):
                    handle.remove()

    handle = register_module_forward_pre_hook(hook)


def _all_agree(folder: Path, module: nn.Module, rank: int, world: int, attempt: int) -> bool:
    digest = xxhash.xxh3_64()
    for parameter in module.parameters():
        digest.update(as_bytes(parameter))
    write_whole(folder / f"weights-{rank}-{attempt}", digest.hexdigest())
    paths = [folder / f"weights-{other}-{attempt}" for other in range(world)]
    until = time.monotonic() + _TIMEOUT
    while not all(path.exists() for path in paths):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
    return len({path.read_text(encoding="utf-8") for path in paths}) == 1


def _copied(path: Path) -> Iterator[Weights]:
    """Two models may use one name: the first takes the first. Yields what was changed."""
    from safetensors.torch import load_file

    given: dict[tuple[str, torch.Size], list[torch.Tensor]] = defaultdict(list)
    for key, tensor in sorted(load_file(path).items(), key=lambda each: int(each[0].partition(":")[0])):
        given[key.partition(":")[2], tensor.shape].append(tensor)
    for name, tensor in _tensors():
        free = given[name, as_real(tensor).shape]
        other = as_kind_of(tensor, free.pop(0)) if free else None
        if other is not None and not torch.equal(other, tensor.cpu()):
            yield Weights(
                name, tensor.numel(), _moments(other), _moments(tensor), _correlation(other, tensor)
            )
            tensor.data.copy_(other)


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = (values - values.mean() for values in (flat_of(a).double(), flat_of(b).double()))
    scale = float(x.norm() * y.norm())
    return float(x @ y) / scale if scale else 0.0


def _moments(tensor: torch.Tensor) -> tuple[float, float, float]:
    values = flat_of(tensor).double()
    return tuple(float((values**power).mean()) for power in (1, 2, 4))  # type: ignore[return-value]


def _tensors() -> Iterable[tuple[str, torch.Tensor]]:
    """Parameters and buffers of all models alive, by name, each once."""
    return by_shortest_name(named_tensors(tensor_tables(living_roots()))).values()
