# mypy: disable-error-code="import-not-found"
"""What a step costs beside torch's own DistributedDataParallel: `step_cost.py [layers] [steps] [kind]`.

A net of small layers (Linear, BatchNorm, ReLU), on which every microsecond of the wrapper shows, on two ranks over
gloo. In the same processes, step about: torch's DistributedDataParallel on the own rows with the local loss, which is
a port by hand, and the template's wrapper on the same rows with the loss of all of them. Prints medians of the wall
and of the CPU time of a step, their ratios, and the collectives and bytes of one step.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from dp2ddp.templates.ddp import WholeBatchDDP
from dp2ddp.templates.model import WholeBatchParallel
from dp2ddp.templates.ranks import init_distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROWS, WIDTH, CLASSES = 64, 32, 10


def net_of(layers: int) -> nn.Module:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(WIDTH, CLASSES))


def stepper(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def measure(rank: int, world: int, layers: int, times: int, kind: str) -> None:
    x, y = torch.randn(ROWS, WIDTH), torch.randint(0, CLASSES, (ROWS,))
    port = DistributedDataParallel(net_of(layers))
    wrapper = {"reducer": WholeBatchDDP, "graph": WholeBatchParallel}[kind](net_of(layers))
    steps = {
        "port": stepper(port, x.chunk(world)[rank], y.chunk(world)[rank]),
        "converted": stepper(wrapper, x, y),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(times):
        for name, step in steps.items():
            start = time.perf_counter(), time.process_time()
            step()
            seconds[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    medians = {
        name: [1e3 * statistics.median(column) for column in zip(*found[times // 5 :], strict=True)]
        for name, found in seconds.items()
    }
    if os.environ.get("PROFILE") and rank == int(os.environ["PROFILE"]):
        profile(steps["converted"])
    elif os.environ.get("PROFILE"):
        for _ in range(100):
            steps["converted"]()
    calls = [count_calls(step) for step in steps.values()]
    for turn in range(world):
        torch.distributed.barrier()
        if turn == rank:
            (port_wall, port_cpu), (wall, cpu) = medians.values()
            print(f"rank {rank}: port {port_wall:.2f} ms, CPU {port_cpu:.2f}; converted {wall:.2f}, CPU {cpu:.2f}; "
                  f"ratios {wall / port_wall:.2f}, {cpu / port_cpu:.2f}", file=sys.__stderr__)  # fmt: skip
            if rank == 0:
                for name, found in zip(steps, calls, strict=True):
                    print(f"    {name}: {found}", file=sys.__stderr__)


def profile(step: Callable[[], None]) -> None:
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(100):
        step()
    profiler.disable()
    pstats.Stats(profiler, stream=sys.__stderr__).sort_stats("tottime").print_stats(35)


def count_calls(step: Callable[[], None]) -> list[tuple[str, int]]:
    """The collectives that Python calls in a step (torch's reducer calls its own), and the bytes of each."""
    found: list[tuple[str, int]] = []
    names = ("all_gather", "all_reduce", "broadcast", "all_gather_into_tensor")
    originals = {name: getattr(torch.distributed, name) for name in names}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            tensor = arguments[1] if name.startswith("all_gather") else arguments[0]
            found.append((name, tensor.numel() * tensor.element_size()))
            return originals[name](*arguments, **options)

        return call

    for name in names:
        setattr(torch.distributed, name, counting(name))
    try:
        step()
    finally:
        for name, original in originals.items():
            setattr(torch.distributed, name, original)
    return found


def main(layers: int, times: int, kind: str, world: int = 2) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
            torch.set_num_threads(1)
            init_distributed()
            sys.stderr = sys.__stderr__
            measure(rank, world, layers, times, kind)
            sys.exit()
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 53,
        int(given[1]) if given[1:] else 60,
        given[2] if given[2:] else "reducer",
    )
