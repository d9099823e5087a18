"""What a step of a wrapped model exchanges, and that nobody misses what is no longer sent. Each check returns facts."""

from __future__ import annotations

import contextlib
import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed
import torch.nn.functional as F
from dp2ddp.templates import late_sums
from dp2ddp.templates.buffers import GuardedBuffers
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.lean import WholeBatchParallel
from dp2ddp.templates.plain import LogFile, WholeBatchDDP, run_on_rank0
from dp2ddp.templates.process import alone, exchange, own_rank, world_size
from torch import nn
from torch.utils.checkpoint import checkpoint

NAMES = ("all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "reduce", "all_to_all")


@contextlib.contextmanager
def counted() -> Iterator[list[tuple[str, int]]]:
    """The collectives that Python calls in a block, and the bytes that this rank brings to each."""
    found: list[tuple[str, int]] = []
    originals = {name: getattr(torch.distributed, name) for name in NAMES}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            own = arguments[1] if name.startswith("all_gather") else arguments[0]
            found.append((name, own.numel() * own.element_size()))
            return originals[name](*arguments, **options)

        return call

    for name in NAMES:
        setattr(torch.distributed, name, counting(name))
    try:
        yield found
    finally:
        for name, original in originals.items():
            setattr(torch.distributed, name, original)


class Pictures(nn.Module):
    """Convolutions, batch norm and a classifier, as most of the scripts have it."""

    def __init__(self, drop: float = 0.0, classes: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, classes)
        self.unused = nn.Linear(2, 2)
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.norm(self.conv(x))).mean((2, 3))
        out: torch.Tensor = self.head(F.dropout(features, self.drop, self.training))
        return out


def pictures(seed: int = 0, rows: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = 4 * world_size() + 1 if rows is None else rows
    return torch.randn(rows, 3, 6, 6, generator=generator), torch.randint(0, 10, (rows,), generator=generator)


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0, passes: int = 1) -> None:
    optimizer.zero_grad()
    for number in range(passes):
        x, y = pictures(seed + number)
        F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def trained(module: nn.Module, steps: int = 3, kind: type[GraphDDP] = ExactDDP) -> tuple[Any, Any]:
    net = kind(module)
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
    for seed in range(steps):
        train_step(net, optimizer, seed)
    return net, optimizer


def what_a_step_exchanges() -> Any:
    """[calls, bytes] of a step in its usual state; what small outputs weigh is taken off the bytes."""
    ExactDDP.training_wrappers.clear()
    torch.manual_seed(1)
    found: dict[str, Any] = {}
    outputs = 5 * 10 * 4  # rows of the largest chunk, classes, bytes of a number

    def note(name: str, step: Callable[[], Any], forwards: int = 1) -> None:
        with counted() as calls:
            step()
        found[name] = [len(calls) - forwards, max([0, *(size for _, size in calls)]) - outputs]

    net, optimizer = trained(Pictures())
    note("plain", lambda: train_step(net, optimizer))
    note("accumulation", lambda: train_step(net, optimizer, passes=3), 3)
    net.eval()
    x, _ = pictures()
    with torch.no_grad():
        net(x)  # brings the running averages, once
        note("evaluation", lambda: net(x))
    net, optimizer = trained(Pictures(drop=0.5))
    note("dropout", lambda: train_step(net, optimizer))
    found["dropout"][1] -= torch.get_rng_state().numel()  # rank 0's, from which the script draws on
    net, optimizer = trained(Pictures(), kind=GraphDDP)
    with counted() as calls:
        train_step(net, optimizer)
    found["graph"] = [name for name, _ in calls]
    return found


def a_gan_step() -> Any:
    """Two models: the reports of four forwards, and the gradient that goes from one to the other."""
    ExactDDP.training_wrappers.clear()
    torch.manual_seed(1)
    critic, maker = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), nn.Linear(3, 4)
    d, g = ExactDDP(critic), ExactDDP(maker)
    steps = [torch.optim.SGD(one.parameters(), 0.1) for one in (critic, maker)]

    def step() -> None:
        real, noise = torch.randn(4 * world_size(), 4), torch.randn(4 * world_size(), 3)
        fake = g(noise)
        steps[0].zero_grad()
        (F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()).backward()  # type: ignore[no-untyped-call]
        steps[0].step()
        steps[1].zero_grad()
        F.softplus(-d(fake)).mean().backward()  # type: ignore[no-untyped-call]
        steps[1].step()

    for _ in range(3):
        step()
    with counted() as calls:
        step()
    return [name for name, _ in calls]


def sums_of_a_gan() -> Any:
    """Summed in the graph: what each of DCGAN's three backwards exchanges, and an attack that wants no sums."""
    torch.manual_seed(1)
    critic, maker = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), nn.Linear(3, 4)
    d, g = GraphDDP(critic), GraphDDP(maker)
    found = []
    for _ in range(2):
        real, fake = torch.randn(4 * world_size(), 4), g(torch.randn(4 * world_size(), 3))
        for given in (real, fake.detach(), fake):
            loss = F.softplus(d(given)).mean()
            with counted() as calls:
                loss.backward()  # type: ignore[no-untyped-call]
            found.append([name for name, _ in calls])
    x = real.clone().requires_grad_(True)
    loss = d(x).sum()
    with counted() as calls:
        torch.autograd.grad(loss, x)
    return [*found[3:], [name for name, _ in calls]]


def large_sums_set_out_alone() -> Any:
    """How many numbers each sum of a step adds up: a weight that fills its bucket, and all behind it."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(600, 500), nn.Linear(500, 560), nn.Linear(560, 2))
    net = GraphDDP(module)
    x = torch.randn(2 * world_size(), 600)
    found = []
    with mock.patch.object(late_sums, "BUCKET_BYTES", 1_200_000):
        for rows in (2 * world_size(), 2 * world_size(), 1):
            with counted() as calls:
                net(x[:rows]).sum().backward()
            found.append([size // 4 for name, size in calls if name == "all_reduce"])
    return found


def a_backward_that_raised() -> Any:
    """What is summed late is forgotten where a backward pass raises; .grad is as it was, and the next pass is right."""
    torch.manual_seed(1)
    module = nn.Linear(3, 2)
    net = GraphDDP(module)
    x = torch.randn(2 * world_size(), 3)
    net(x).sum().backward()
    assert module.weight.grad is not None
    wanted = module.weight.grad.clone()

    def refuse(gradient: torch.Tensor) -> None:
        raise FloatingPointError("not this time")

    inputs = x.clone().requires_grad_(True)
    inputs.register_hook(refuse)
    said = ""
    try:
        net(inputs).sum().backward()
    except FloatingPointError as error:
        said = str(error)
    kept = torch.equal(module.weight.grad, wanted)
    net(x).sum().backward()
    return [said, kept, torch.equal(module.weight.grad, 2 * wanted), len(late_sums.LateSums.passes)]


def a_hook_behind_the_forward() -> Any:
    """The ranks have settled how gradients are summed: one that comes now would see nothing, so it is refused."""
    module = nn.Linear(3, 2)
    loss = GraphDDP(module)(torch.ones(2 * world_size(), 3)).sum()
    module.weight.register_hook(lambda gradient: gradient)
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)[:32]
    return "nothing"


def is_far(module: nn.Module) -> bool:
    return any(type(part._buffers) is GuardedBuffers for part in module.modules())


def buffers_come_to_whoever_looks() -> Any:
    """Each way to look: [rank 0's values came, by one broadcast, and the next look needs none]."""
    x, _ = pictures()
    ways: dict[str, Callable[[Any, Any], Any]] = {
        "attribute": lambda net, module: module.norm.running_mean,
        "buffers": lambda net, module: list(module.buffers())[0],
        "named_buffers": lambda net, module: dict(module.named_buffers())["norm.running_mean"],
        "state_dict": lambda net, module: module.state_dict()["norm.running_mean"],
        "state_dict of the wrapper": lambda net, module: net.state_dict()["module.norm.running_mean"],
        "a part's state_dict": lambda net, module: module.norm.state_dict()["running_mean"],
        "get_buffer": lambda net, module: module.get_buffer("norm.running_mean"),
        "deepcopy": lambda net, module: copy.deepcopy(module).norm.running_mean,
        "deepcopy of the wrapper": lambda net, module: copy.deepcopy(net).module.norm.running_mean,
        "pickle": lambda net, module: pickle.loads(pickle.dumps(module)).norm.running_mean,
        "pickle of the wrapper": lambda net, module: pickle.loads(pickle.dumps(net)).module.norm.running_mean,
        "apply": lambda net, module: look_by_apply(module),
        "to": lambda net, module: module.double().float().norm.running_mean,
        "vars": lambda net, module: vars(module.norm)["_buffers"]["running_mean"],
        "dict of the table": lambda net, module: dict(module.norm._buffers)["running_mean"],
        "evaluation": lambda net, module: net.eval()(x),
        "evaluation past the wrapper": lambda net, module: module.eval()(x),
        "evaluation of a part": lambda net, module: module.norm.eval()(torch.ones(2, 8, 2, 2)),
        "functional": lambda net, module: F.batch_norm(
            torch.ones(2, 8), module.norm.running_mean, module.norm.running_var
        ),
        "functional_call": lambda net, module: torch.func.functional_call(module.eval(), {}, (x,)),
    }
    facts = {}
    for way, look in ways.items():
        torch.manual_seed(2)
        module = Pictures()
        net, _ = trained(module)
        far = is_far(module)
        with counted() as calls:
            seen = look(net, module).detach().clone()
        broadcasts = [name for name, _ in calls if name == "broadcast"]
        with counted() as again:
            held = vars(module.norm)["_buffers"]["running_mean"].clone()
        same = all(torch.equal(torch.tensor(one), seen) for one in exchange(seen.tolist()))
        alike = len(set(map(str, exchange(held.tolist())))) == 1
        facts[way] = [far, len(broadcasts), same, alike, again, is_far(module)]
    return facts


def look_by_apply(module: nn.Module) -> torch.Tensor:
    found: list[torch.Tensor] = []
    module.apply(lambda part: found.extend(part._buffers.values()))  # type: ignore[arg-type]
    return found[0]


def running_averages_are_replica_zeros() -> Any:
    """After steps, evaluation, steps and a look: those of a module that saw the first chunk only; [same, same]."""
    torch.manual_seed(3)
    module = Pictures()
    alone_module = copy.deepcopy(module)
    net = ExactDDP(module)
    for round_number in range(2):
        for seed in range(3):
            x, _ = pictures(seed)
            net.train()(x)
            alone_module.train()(x.chunk(world_size())[0])
        net.eval()
        with torch.no_grad():
            net(pictures()[0])
        del round_number
    pairs = zip(module.buffers(), alone_module.buffers(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def whoever_holds_a_buffer_sees_it_change() -> Any:
    """By the tensor, a view, numpy, or the table: buffers that somebody holds come at each step, as before."""
    facts = []
    holds: tuple[Callable[[nn.BatchNorm2d], Any], ...] = (
        lambda norm: norm.running_mean,
        lambda norm: norm.running_mean[:],  # type: ignore[index]
        lambda norm: norm.running_mean.numpy(),  # type: ignore[union-attr]
        lambda norm: vars(norm)["_buffers"],
    )
    for hold in holds:
        torch.manual_seed(2)
        module = Pictures()
        net, optimizer = trained(module)
        held = hold(module.norm)
        for seed in range(2):
            train_step(net, optimizer, seed)
            values = held["running_mean"] if isinstance(held, dict) else held
            facts.append(len(set(map(str, exchange(torch.as_tensor(values).tolist())))) == 1)
    return facts


def rank_zero_alone_looks_without_waiting() -> Any:
    module = Pictures()
    trained(module)
    with counted() as calls:
        if own_rank() == 0:
            with alone():
                module.state_dict()
    return [calls, is_far(module)]


class Parts(nn.Module):
    """A layer for even calls, one for odd ones, one that nobody uses, and one that only the first rows use."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

    def forward(self, x: torch.Tensor, odd: int = 0) -> torch.Tensor:
        out: torch.Tensor = self.layers[odd](x)
        return out + self.layers[3](x) if bool((x[:, 0] > 0).any()) else out


def missing_gradients_are_zeros() -> Any:
    """In every step each parameter has DataParallel's gradient: of the whole batch, or zeros; never None."""
    ExactDDP.training_wrappers.clear()
    torch.manual_seed(4)
    module = Parts()
    plain = copy.deepcopy(module)
    net = ExactDDP(module)
    facts = []
    for step in range(8):
        x = -torch.rand(2 * world_size(), 3)
        x[0, 0] = 1.0  # the first rank alone uses the last layer
        none = step % 2 == 0
        for one in (module, plain):
            one.zero_grad(set_to_none=none)
        for number in range(1 + step // 4):  # then with accumulation
            odd = (step // 2 + number) % 2
            net(x, odd).pow(2).sum().backward()
            for chunk in x.chunk(world_size()):
                plain(chunk, odd).pow(2).sum().backward()
        for own, other in zip(module.parameters(), plain.parameters(), strict=True):
            wanted = torch.zeros_like(other) if other.grad is None else other.grad
            facts.append(own.grad is not None and torch.allclose(own.grad, wanted, rtol=1e-5, atol=1e-6))
    return [all(facts), len(net.missing.known) > 0]


def unused_layers_wait_for_nobody() -> Any:
    """Once it is known that a layer gets no gradient, it has its zeros early; thawed and frozen ones are right."""
    ExactDDP.training_wrappers.clear()
    module = Pictures()
    net, optimizer = trained(module, 2)
    known = {id(p) for p in module.unused.parameters()} == net.missing.known
    zeros = all(p.grad is not None and not p.grad.any() for p in module.unused.parameters())
    module.conv.requires_grad_(False)
    train_step(net, optimizer)
    frozen = module.conv.weight.grad is None
    module.conv.requires_grad_(True)
    train_step(net, optimizer)
    return [known, zeros, frozen, module.conv.weight.grad is not None]


class MovesWeights(nn.Module):
    """Sets its own weight's data in forward, as weight normalisation by hand does: lost with the replica."""

    def __init__(self, from_step: int = 0) -> None:
        super().__init__()
        self.line, self.from_step = nn.Linear(3, 3), from_step

    def forward(self, x: torch.Tensor, step: int = 0) -> torch.Tensor:
        if step >= self.from_step:
            self.line.weight.data = F.normalize(self.line.weight.data)
        out: torch.Tensor = self.line(x)
        return out


def parameters_given_other_data_are_kept() -> Any:
    torch.manual_seed(5)
    module = MovesWeights()
    net, before = ExactDDP(module), module.line.weight.detach().clone()
    x = torch.randn(2 * world_size(), 3)
    for _ in range(3):
        net(x).sum().backward()
    late = ExactDDP(MovesWeights(2))
    said = ""
    for step in range(3):
        try:
            late(x, step).sum().backward()
        except RuntimeError as error:
            said = str(error)
    return [torch.equal(module.line.weight, before), "other data" in said]


class Casting(nn.Module):
    """Autocasts inside of its forward, as DataParallel's documentation says."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.line, self.dtype = nn.Linear(3, 3), dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.line(x).float()  # type: ignore[no-any-return]


def rows_are_scaled_but_in_float16() -> Any:
    """[plain, bfloat16 inside, float16 inside, and for good]: whether gradients are scaled where they enter."""
    from dp2ddp.templates.half import HalfPrecision

    before, HalfPrecision.seen = HalfPrecision.seen, False
    facts = []
    for module in (nn.Linear(3, 3), Casting(torch.bfloat16), Casting(torch.float16), nn.Linear(3, 3)):
        net = ExactDDP(module)
        for _ in range(2):
            net(torch.ones(world_size(), 3)).sum().backward()
        facts.append(net.scales_rows)
    HalfPrecision.seen = before
    return facts


class Again(nn.Module):
    """Runs batch norm again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(checkpoint(self.norm, x, use_reentrant=False))
        return out


def layers_that_run_again_change_rank_zeros_buffers() -> Any:
    """Batch norm runs twice a step on rank 0, and what it left behind in backward comes to all that look."""
    torch.manual_seed(6)
    module = Again()
    net, plain = ExactDDP(module), copy.deepcopy(module)
    for _ in range(3):
        x = torch.randn(3 * world_size(), 3)
        net(x).sum().backward()
        plain(x.chunk(world_size())[0]).sum().backward()
    seen = {name: tensor.tolist() for name, tensor in module.named_buffers()}
    same = seen == {name: tensor.tolist() for name, tensor in plain.named_buffers()}
    return [same, exchange(seen) == [seen] * world_size(), int(module.norm.num_batches_tracked or 0)]


class Reads(Pictures):
    """Looks at a part's running averages in its forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.norm.running_mean
        assert mean is not None
        return super().forward(x) + mean.sum()


class ReadsByAFunction(Pictures):
    """The same, by a function that is no method."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + average_of(self.norm)


def average_of(part: Any) -> torch.Tensor:
    mean: torch.Tensor = part.running_mean
    return mean.sum()


def a_forward_that_reads_averages_has_rank_zeros() -> Any:
    """With steps that change no parameter, every rank's rows see what replica 0 has left before."""
    return all(reads_rank_zeros(kind()) for kind in (Reads, ReadsByAFunction))


def reads_rank_zeros(module: Pictures) -> bool:
    torch.manual_seed(7)
    net, plain = ExactDDP(module), copy.deepcopy(module)
    same = []
    for seed in range(3):
        x, _ = pictures(seed)
        before = {name: tensor.clone() for name, tensor in plain.named_buffers()}
        wanted = []
        for number, chunk in enumerate(x.chunk(world_size())):
            twin = plain if number == 0 else copy.deepcopy(plain)
            if number:
                twin.load_state_dict({**twin.state_dict(), **before})
            wanted.append(twin(chunk))
        same.append(torch.allclose(net(x), torch.cat(wanted), atol=1e-6))
    return all(same)


class Table(nn.Module):
    """Prototypes: a forward without arguments. Its stream is no random one."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = "rgb"
        self.rows = nn.Parameter(torch.arange(6.0).view(3, 2))

    def forward(self) -> torch.Tensor:
        return self.rows * 2


def smaller_wrappers_without_arguments() -> Any:
    """As DataParallel: one device runs, so that rows are there once, and their gradients, too."""
    found = []
    for kind in (WholeBatchDDP, WholeBatchParallel):
        table = Table()
        out = kind(table)()
        out.sum().backward()
        assert table.rows.grad is not None
        found.append([list(out.shape), table.rows.grad.unique().tolist()])
    return found


class TwoNames(nn.Module):
    """A layer that is an attribute and part of a Sequential, too, as in DGCNN."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.body = nn.Sequential(nn.Linear(3, 3), self.norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(x) * self.norm.weight
        return out


def lean_wrapper_leaves_parameters_where_they_were() -> Any:
    """Also in a part that the module has by two names."""
    torch.manual_seed(3)
    module = TwoNames()
    before = [id(parameter) for parameter in module.parameters()]
    WholeBatchParallel(module)(torch.randn(8, 3)).sum().backward()
    after = [id(parameter) for parameter in module.parameters()]
    return [before == after, module.body[1].weight is module.norm.weight, module.norm.weight.is_leaf]


def files_that_nobody_closes() -> Any:
    """They are written out when nobody has them any more, and not at the end of the run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(exchange(folder)[0], "log.txt")
        for line in range(3):
            LogFile(path, "a").write(f"{line}\n")
        exchange(None)
        text = path.read_text()
        exchange(None)
    return text


def errors_of_run_on_rank0() -> Any:
    """What rank 0 meets all ranks meet, so that a script may catch it, and all go on."""

    def fail() -> None:
        raise FileExistsError("out")

    try:
        run_on_rank0(fail)
    except FileExistsError as error:
        return exchange([own_rank(), str(error)])


LEAN_CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check
    for check in (
        what_a_step_exchanges,
        a_gan_step,
        sums_of_a_gan,
        large_sums_set_out_alone,
        a_backward_that_raised,
        a_hook_behind_the_forward,
        buffers_come_to_whoever_looks,
        running_averages_are_replica_zeros,
        whoever_holds_a_buffer_sees_it_change,
        rank_zero_alone_looks_without_waiting,
        missing_gradients_are_zeros,
        unused_layers_wait_for_nobody,
        parameters_given_other_data_are_kept,
        rows_are_scaled_but_in_float16,
        layers_that_run_again_change_rank_zeros_buffers,
        a_forward_that_reads_averages_has_rank_zeros,
        smaller_wrappers_without_arguments,
        lean_wrapper_leaves_parameters_where_they_were,
        files_that_nobody_closes,
        errors_of_run_on_rank0,
    )
}
