"""The parts of DataParallel over forked ranks, beside one process: python functions_program.py FOLDER WORLDS."""

from __future__ import annotations

import collections
import contextlib
import io
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from dp2ddp.templates import functions, synced  # noqa: E402
from dp2ddp.templates.bases import rebase  # noqa: E402
from dp2ddp.templates.model import AnyDataParallel  # noqa: E402
from dp2ddp.templates.ranks import ranks_apart  # noqa: E402
from forked_ranks import find_on_ranks  # noqa: E402
from reference import Devices  # noqa: E402
from scenarios import Centered  # noqa: E402
from torch import nn  # noqa: E402
from turns_program import ReplicasOfOneProcess  # noqa: E402

SYNCED = HERE.parent / "corpus" / "models" / "synced_bn_patched.py"
SIZES = (7, 4, 1, 5)  # rows of the batches: more, as many, and fewer than ranks


class Uneven(functions.DataParallelOnRanks):
    """The first device gets one row."""

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        rows = inputs[0].split(shares(len(inputs[0]), len(device_ids)))
        return tuple((each,) for each in rows), tuple({} for _ in rows)


class UnevenReference(ReplicasOfOneProcess):
    def scatter(self, value: torch.Tensor) -> list[torch.Tensor]:
        return list(value.split(shares(len(value), self.world)))


class Lists(nn.DataParallel):
    """As torch_geometric's: it takes a list of samples, and fewer devices where there are fewer of them."""

    def __init__(self, module: nn.Module, device_ids: Any = None, scale: float = 1.0) -> None:
        super().__init__(module, device_ids)
        self.scale = scale

    def forward(self, samples: list[torch.Tensor]) -> Any:
        inputs = self.scatter(samples, self.device_ids)  # type: ignore[call-arg]
        replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
        return self.gather(self.parallel_apply(replicas, inputs, None), self.output_device)

    def scatter(self, samples: list[torch.Tensor], device_ids: Any) -> Any:  # type: ignore[override]
        return [torch.stack(samples[start:end]) * self.scale for start, end in halves(samples, device_ids)]


class ListsReference(ReplicasOfOneProcess):
    def scatter(self, samples: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.stack(samples[a:b]) * 2.0 for a, b in halves(samples, range(self.world))]


def halves(samples: list[torch.Tensor], devices: Any) -> Iterator[tuple[int, int]]:
    """The first device takes half of them, the next one half of the rest, the last one what is left."""
    start, last = 0, min(len(devices), len(samples)) - 1
    for place in range(last + 1):
        end = len(samples) if place == last else start + max(1, (len(samples) - start - last + place) // 2)
        yield start, end
        start = end


class Averages(nn.Module):
    """Gives several things, and changes a buffer in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.linear = nn.Linear(3, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows: torch.Tensor) -> dict[str, Any]:
        y = self.linear(rows)
        self.mean.mul_(0.9).add_(y.detach().mean(0))  # type: ignore[operator, union-attr]
        return {"y": (y - self.mean).tanh(), "parts": (y.sum(), y[:, 0])}


def shares(rows: int, world: int) -> list[int]:
    rest = [len(each) for each in torch.arange(rows - 1).chunk(world - 1)] if rows > 1 else []
    return [1, *rest]


class Filling(nn.Module):
    """Goes on with what the replica before has left in a list, a counter and a weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.linear, self.seen = nn.Linear(3, 4), []
        self.count: collections.Counter[str] = collections.Counter()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        y = self.linear(rows) * (1 + 0.1 * len(self.seen)) + self.count["rows"]
        self.mean.add_(y.detach().mean(0))  # type: ignore[operator]
        self.seen.append(float(y.detach().mean()))
        self.count["rows"] += len(rows)
        print("rows", len(rows))
        return y


class Steps(Filling):
    """Reaches a module that is none of its layers, so that ranks above 0 write into other buffers than its own."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [nn.Linear(1, 1)]


class UnevenInTurns(functions.DataParallelInTurns):
    scatter = Uneven.scatter


def by_hand(
    module: nn.Module, apply: Any = functions.parallel_apply_on_ranks
) -> Callable[[torch.Tensor], torch.Tensor]:
    devices = range(dist.get_world_size())

    def call(x: torch.Tensor) -> torch.Tensor:
        parts = functions.scatter_on_ranks((x,), devices)
        replicas = functions.replicate_on_ranks(module, devices)[: len(parts)]
        outputs = apply(replicas, parts)
        gathered: torch.Tensor = functions.gather_on_ranks(outputs, 0)
        return gathered

    return call


class Tracking(nn.Module):
    """Frozen parameters that forwards write into, some without a version that says so, some of replicas only."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(4), requires_grad=False)
        self.gain = nn.Parameter(torch.ones(1, 4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack([x, x.sin()], 2)  # a row is enough for batch norm
        if bool(x[0, 0] > 0):
            with torch.no_grad():
                self.gain.add_(x.mean(0))
        return nn.functional.batch_norm(pairs, self.mean, self.variance, training=True).sum(2) * self.gain


def net() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), Tracking(), nn.Tanh(), nn.Linear(4, 2))


def numbers_of(module: nn.Module, call: Any) -> Iterator[torch.Tensor]:
    """What training gives: outputs, gradients of the inputs (two backwards a step), parameters."""
    generator = torch.Generator().manual_seed(8)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for rows in SIZES:
        x = torch.randn(rows, 3, generator=generator).requires_grad_()
        output = call(x)
        optimizer.zero_grad()
        output.pow(2).mean().backward(retain_graph=True)
        (0.3 * output.sin()).sum().backward()
        optimizer.step()
        yield from (output.detach(), x.grad)  # type: ignore[misc]
    yield from (each.detach() for each in (*module.parameters(), *module.buffers()))


def library(world: int) -> Any:
    """Two forwards before each backward, and one more whose outputs nobody uses."""

    def twice(wrapped: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def call(x: torch.Tensor) -> torch.Tensor:
            first, second, _ = wrapped([*x]), wrapped([*x.flip(0)]), wrapped([*x])
            return torch.cat([first["y"].reshape(-1), second["parts"][0], second["parts"][1] * 3])

        return call

    own, other = Averages(), Averages()
    kind = rebase(rebase(Lists, functions.LibrarysOnRanks), functions.LibrarysOnRanks)  # named twice
    assert issubclass(kind, AnyDataParallel)
    reference = ListsReference(other, Devices(), world)
    return numbers_of(own, twice(kind(own, scale=2.0))), numbers_of(other, twice(reference))


def subclass(world: int) -> Any:
    own, other = net(), net()
    reference = UnevenReference(other, Devices(), world)
    return numbers_of(own, Uneven(own)), numbers_of(other, reference)


def parts_by_hand(world: int) -> Any:
    own, other = net(), net()
    reference = ReplicasOfOneProcess(other, Devices(), world)
    return numbers_of(own, by_hand(own)), numbers_of(other, reference)


def in_turns(world: int, own: Filling, call: Any, reference: Any = ReplicasOfOneProcess) -> Any:
    """What is trained, printed, and left in lists."""

    def found(module: Filling, call: Any) -> Iterator[torch.Tensor]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield from numbers_of(module, call)
        yield torch.tensor([*module.seen, module.count["rows"]])
        if dist.get_rank() == 0 or module is not own:
            yield torch.tensor([*map(ord, printed.getvalue())])

    other = type(own)()
    left = found(other, reference(other, Devices(), world))
    return found(own, call), [*left][: None if dist.get_rank() == 0 else -1]


def subclass_in_turns(world: int) -> Any:
    own = Filling()
    return in_turns(world, own, UnevenInTurns(own), UnevenReference)


def library_in_turns(world: int) -> Any:
    own = Filling()
    wrapped = rebase(type("Mine", (nn.DataParallel,), {}), functions.LibrarysInTurns)(own)
    return in_turns(world, own, wrapped)


def parts_in_turns(world: int) -> Any:
    own = Filling()
    return in_turns(world, own, by_hand(own, functions.parallel_apply_in_turns))


def buffers_apart(world: int) -> Any:
    own = Steps()
    return in_turns(world, own, by_hand(own, functions.parallel_apply_in_turns))


def function_in_turns(world: int) -> Any:
    own, devices = Filling(), range(world)
    return in_turns(world, own, lambda x: functions.data_parallel_in_turns(own, x, devices))


def inputs_written(world: int) -> Any:
    """The first replica's rows are the caller's own, and those of others are copies."""

    def train(module: nn.Module, call: Any) -> Iterator[torch.Tensor]:
        for rows in SIZES:
            x = torch.arange(20.0 * rows).reshape(rows, 20).sin()
            output = call(x)
            (output * x[:, :5]).sum().backward()
            yield from (output.detach(), x)
        yield from (p.grad for p in module.parameters())  # type: ignore[misc]

    torch.manual_seed(4)
    own, other = Centered(), Centered()
    other.load_state_dict(own.state_dict())
    reference = ReplicasOfOneProcess(other, Devices(), world)
    return train(own, by_hand(own)), train(other, reference)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.net(x)
        self.seen += y.detach().mean(0)
        return y + self.seen


def scripted(world: int) -> Any:
    """Compiled by torch.jit, as a whole: what a replica has is in C++."""
    own, other = torch.jit.script(Counting()), torch.jit.script(Counting())
    call, reference = by_hand(own), ReplicasOfOneProcess(other, Devices(), world)
    return (each for each in (*numbers_of(own, call), own.seen)), (*numbers_of(other, reference), other.seen)


class Functional(nn.Module):
    """No module does the work: a dict of tensors is broadcast; the first replica's averages stay."""

    def __init__(self, world: int, over_ranks: bool) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.w, self.world, self.over_ranks = nn.Parameter(torch.randn(2, 3)), world, over_ranks
        self.seen = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def f(part: torch.Tensor, w: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            seen.mul_(0.9).add_(part.detach().mean(0))
            return part @ w.t() + seen[:2]

        if not self.over_ranks:
            parts = x.chunk(self.world)
            copies = [self.seen if r == 0 else self.seen.clone() for r in range(len(parts))]
            return torch.cat([f(part, self.w, seen) for part, seen in zip(parts, copies, strict=True)])
        devices = range(self.world)
        copies = functions.broadcast_on_ranks(devices, self.w, self.seen)
        calls = [lambda part, w=copies[2 * r], seen=copies[2 * r + 1]: f(part, w, seen) for r in devices]
        parts = functions.scatter_on_ranks(x, devices)
        outputs = functions.parallel_apply_on_ranks(calls[: len(parts)], parts)
        gathered: torch.Tensor = functions.gather_on_ranks(outputs, 0)
        return gathered


def broadcast_by_hand(world: int) -> Any:
    own, other = Functional(world, True), Functional(world, False)
    return numbers_of(own, own), numbers_of(other, other)


def synced_layer(world: int) -> Any:
    """Batch norm over all replicas is that of the whole batch, with unbiased running variances."""
    text = SYNCED.read_text()
    sys.modules["synced_bn"] = types.ModuleType("synced_bn")  # messages are pickled
    home = vars(sys.modules["synced_bn"])
    home.update({name: getattr(functions, name) for name in ("broadcast_on_ranks", "reduce_add_on_ranks")})
    text = text.replace("class SyncMaster(", "@master_on_ranks\nclass SyncMaster(").partition("\nparser")[0]
    text = text.replace("ReduceAddCoalesced.apply", "reduce_add_on_ranks").replace(
        "Broadcast.apply", "broadcast_on_ranks"
    )
    home["master_on_ranks"] = synced.master_on_ranks
    exec(compile(text.partition("def patch_replication_callback")[0], str(SYNCED), "exec"), home)

    class WithCallback(functions.DataParallelOnRanks):
        def replicate(self, module: nn.Module, device_ids: Any) -> list[Any]:
            replicas = super().replicate(module, device_ids)
            home["execute_replication_callbacks"](replicas)
            return replicas

    def model(norm: Any) -> nn.Module:
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(3, 4), norm(4), nn.Tanh(), norm(4), nn.Linear(4, 2))

    own, other = model(home["SynchronizedBatchNorm1d"]), model(nn.BatchNorm1d)
    wrapped = WithCallback(own)
    sizes = [rows for rows in SIZES if rows > 1]

    def train(module: nn.Module, call: Any) -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(8)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for rows in sizes:
            x = torch.randn(rows, 3, generator=generator).requires_grad_()
            optimizer.zero_grad()
            call(x).pow(2).sum().backward()
            optimizer.step()
            yield x.grad  # type: ignore[misc]
        yield from (
            each.detach() for each in (*module.parameters(), *module.buffers()) if each.is_floating_point()
        )

    return train(own, wrapped), train(other, other)


CHECKS = (
    library, subclass, parts_by_hand, broadcast_by_hand, synced_layer, inputs_written, scripted,
    subclass_in_turns, library_in_turns, parts_in_turns, buffers_apart, function_in_turns,
)  # fmt: skip


def of_another_rank() -> str:
    """What a replica says that another rank runs."""
    replicas = functions.replicate_on_ranks(nn.Linear(2, 2), range(dist.get_world_size()))
    try:
        replicas[1 - min(dist.get_rank(), 1)](torch.ones(1, 2))
    except RuntimeError as error:
        return str(error)
    return "nothing"


class Box:
    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside


def of_hidden(kind: str) -> str:
    """What is said of tensors with gradients that lie in objects, among inputs and among outputs."""
    module = nn.Linear(2, 2)
    if kind == "outputs":
        module.forward = lambda row: Box(row * 2)  # type: ignore[method-assign]
    replicas = functions.replicate_on_ranks(module, range(dist.get_world_size()))
    row = torch.ones(1, 2).requires_grad_(kind != "nothing")
    calls = [(Box(row) if kind == "inputs" else row,) for _ in replicas]
    try:
        functions.parallel_apply_on_ranks(replicas, calls)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def of_rank_0_alone() -> bool:
    """Whether rank 0 computes all replicas while the others wait for nothing."""
    if dist.get_rank():
        return True
    module = nn.Linear(2, 2)
    with ranks_apart():
        replicas = functions.replicate_on_ranks(module, range(dist.get_world_size()))
        outputs = functions.parallel_apply_on_ranks(replicas, [(torch.ones(1, 2),) for _ in replicas])
    return all(torch.equal(output, module(torch.ones(1, 2))) for output in outputs)


def find(rank: int, world: int) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    answers: dict[str, Any] = {}
    for check in CHECKS:
        try:
            found, wanted = check(world)
            pairs = list(zip(found, wanted, strict=True))
            answers[check.__name__] = max(float((one - other).abs().max()) for one, other in pairs)
        except Exception:
            answers[check.__name__] = traceback.format_exc()
    answers["of_another_rank"] = of_another_rank()
    answers["of_hidden"] = {kind: of_hidden(kind) for kind in ("inputs", "outputs", "nothing")}
    answers["of_rank_0_alone"] = of_rank_0_alone()
    return answers


if __name__ == "__main__":
    find_on_ranks(find, Path(sys.argv[1]), sys.argv[2])
