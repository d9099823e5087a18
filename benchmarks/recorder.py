"""What recording costs, as a share of a step: `python benchmarks/recorder.py [steps]`.

One process trains the same model with and without the record, step by step, on two virtual devices under
DataParallel, batches from a DataLoader. Of the first steps all values are kept and written, of the others hashes and
sketches: the two are told apart. Medians of the CPU time of a step (one thread; other programs disturb it less than
the clock's time); the ratio is (with - without) / without.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dp2ddp.runtime import collectives, decisions, forward_rows, loader_batches, virtual_devices
from dp2ddp.trace.recorder import Recorder

Step = Callable[[], None]


def mlp() -> tuple[nn.Module, tuple[int, ...]]:
    sizes = (784, 1800, 1800, 180)
    layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*itertools.chain(*layers), nn.Linear(180, 10)), (784,)


def conv() -> tuple[nn.Module, tuple[int, ...]]:
    sizes = (3, 64, 128, 256, 512, 640)
    layers = [
        (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in itertools.pairwise(sizes)
    ]
    return nn.Sequential(*itertools.chain(*layers), nn.Flatten(), nn.Linear(640, 10)), (3, 32, 32)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
}


def training(make: Any, optimizer: str, batch: int) -> Step:
    """A function that takes one step."""
    torch.manual_seed(0)
    net, shape = make()
    model = nn.DataParallel(net.cuda())
    stepper = OPTIMIZERS[optimizer](model.parameters())
    data = TensorDataset(torch.randn(4 * batch, *shape), torch.randint(10, (4 * batch,)))
    loader = _endless(DataLoader(data, batch, shuffle=True))

    def step() -> None:
        x, y = next(loader)
        stepper.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x.cuda()), y.cuda()))
        stepper.step()

    return step


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def measure(make: Any, optimizer: str, dtype: str, batch: int, steps: int) -> str:
    installation = virtual_devices.install(2, dtype)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(training(make, optimizer, batch), Path(folder), steps)
    finally:
        installation.undo()


def _measure(step: Step, folder: Path, steps: int) -> str:
    recorder = RECORDERS.begin(folder)
    first = [seconds(step) for _ in range(3)]
    recorder._keeper._left.update(head=0, landmarks=0)  # as after many steps
    recorder._keeper_beside._left.update(head=0, landmarks=0)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(steps):
        for recorder._off in (False, True):
            times[recorder._off].append(seconds(step))
    recorder._off = False
    recorder.finish()
    plain, later = statistics.median(times[True]), statistics.median(times[False])
    return (
        f"{1e3 * plain:8.1f} ms  {(later - plain) / plain:6.1%}"
        f"  {(statistics.median(first) - plain) / plain:8.1%}"
    )


class Recorders:
    """The observers, installed once; each measurement has a recorder of its own."""

    def __init__(self) -> None:
        self._now: Recorder | None = None
        for observe in (
            forward_rows.observe_forwards,
            loader_batches.observe_batches,
            decisions.observe_decisions,
            collectives.observe_collectives,
        ):
            observe(self)  # type: ignore[arg-type]

    def begin(self, folder: Path) -> Recorder:
        self._now = Recorder(folder, rank=0)
        self._now.start()
        return self._now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)


def seconds(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def main(steps: int) -> None:
    torch.set_num_threads(1)
    print("model optimizer dtype   batch      a step   recorded  values kept")
    for make, batch, optimizer, dtype in CASES:
        print(f"{make.__name__:5} {optimizer:9} {dtype:8} {batch:4}", end=" ", flush=True)
        print(measure(make, optimizer, dtype, batch, steps), flush=True)


CASES = [
    (make, batch, optimizer, dtype)
    for make, sizes in ((mlp, (64, 256)), (conv, (32,)))
    for batch in sizes
    for optimizer in OPTIMIZERS
    for dtype in ("float32", "float64")
]
RECORDERS = Recorders()

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
