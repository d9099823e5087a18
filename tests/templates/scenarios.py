"""Training loops in which a DDP port goes wrong; each yields the tensors by which two ways to run it are compared.

`wrap` is the way (DataParallel's reference, a wrapper on ranks), `seed` sets the seed of host and devices.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Wrap = Callable[..., nn.Module]
Seed = Callable[[int], None]
Scenario = Callable[[Wrap, Seed, int], Iterator[torch.Tensor]]
Pair = collections.namedtuple("Pair", "scores features")

STEPS = 2


class Net(nn.Module):
    """Batch statistics, dropout on demand, a layer that is never used, and every kind of output."""

    def __init__(self, norm: type[nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32, bias=norm is not nn.BatchNorm1d), norm(32), nn.ReLU())
        self.head = nn.Linear(32, 5)
        self.unused = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.3)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.body(x)
        return features

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, mode: str = "scores") -> Any:
        features = self.body(x)
        scores = self.head(self.drop(features) if mode == "dropout" else features)
        if "loss" in mode:
            assert y is not None
            loss = F.cross_entropy(scores, y)
            return loss if mode == "loss" or 0 in y else loss.detach()
        outputs = {
            "dict": {"scores": scores, "features": features, "none": None},
            "tuple": (scores, [features, scores * 2]),
            "pair": Pair(scores, features),
        }
        return outputs.get(mode, scores)


def batches(rows: int, steps: int | None = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    dtype = torch.get_default_dtype()
    return [
        (
            torch.randn(rows, 20, generator=generator, dtype=dtype),
            torch.randint(0, 5, (rows,), generator=generator),
        )
        for _ in range(steps or STEPS)
    ]


Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def train(
    net: nn.Module, module: nn.Module, loss_of: Loss, rows: int, adam: bool = False
) -> Iterator[torch.Tensor]:
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        module.parameters(), 0.05, momentum=0.9, weight_decay=1e-2
    )
    if adam:
        optimizer = torch.optim.AdamW(module.parameters(), 1e-2, weight_decay=0.1)
    for x, y in batches(rows):
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        yield from [loss.detach(), *gradients(module)]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    yield from state(module)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    nothing = torch.full((), float("nan"))
    return [nothing if p.grad is None else p.grad.clone() for p in module.parameters()]


def state(module: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def simple(
    loss_of: Loss, rows: int | None = None, adam: bool = False, norm: Any = nn.BatchNorm1d
) -> Scenario:
    def run(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
        seed(0)
        module = Net(norm)
        yield from train(wrap(module), module, loss_of, rows or uneven(world), adam)

    return run


def uneven(world: int) -> int:
    """Rows for chunks of different sizes, each of more than one row: 5+4, 4+4+3, 3+3+3+2."""
    return {2: 9, 3: 11, 4: 11}[world]


def mean_loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(net(x), y)


def contrastive(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = F.normalize(net(x), dim=1)
    itself = torch.eye(len(z), dtype=torch.bool)
    positive = (y[:, None] == y[None]) & ~itself
    log_p = F.log_softmax((z @ z.T / 0.2).masked_fill(itself, -1e9), 1)
    return -(log_p * positive).sum() / positive.sum().clamp_min(1)


def hardest_triplet(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = net(x)
    far, same = torch.cdist(z, z), y[:, None] == y[None]
    return F.relu((far * same).max(1)[0] - (far + 1e3 * same).min(1)[0] + 1).mean()


def mixup(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(len(x))
    scores = net(0.7 * x + 0.3 * x[order])
    return 0.7 * F.cross_entropy(scores, y) + 0.3 * F.cross_entropy(scores, y[order])


class Centered(nn.Module):
    """Writes into its input: under DataParallel, the first replica's rows are the caller's own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor, positive: bool = False) -> torch.Tensor:
        x -= x.mean(0)
        return self.fc(F.relu(x, inplace=positive))  # type: ignore[no-any-return]


def inputs_written_in_forward(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Centered()
    net = wrap(module)
    for rows in (uneven(world), world - 1):
        for x, _ in batches(rows):
            module.zero_grad()
            loss = net(x, positive=rows > world).pow(2).mean()
            (loss * x.pow(2).mean()).backward()
            with torch.no_grad():
                net(x.add_(1).requires_grad_())
            yield from [loss.detach(), x.detach(), *gradients(module)]


def written_into(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What a forward returns is the script's own, as what DataParallel gathers is."""
    scores: torch.Tensor = net(x)
    scores *= 2
    scores[:1] = 0
    return F.cross_entropy(scores, y)


def backward_twice_on_one_forward(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    for x, y in batches(uneven(world)):
        optimizer.zero_grad()
        scores = net(x)
        F.cross_entropy(scores, y).backward(retain_graph=True)
        scores.pow(2).mean().backward()
        yield from gradients(module)
        optimizer.step()
    yield from state(module)


def accumulation(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    for step, (x, y) in enumerate(batches(uneven(world), 4)):
        loss = F.cross_entropy(net(x), y) / 2
        loss.backward()
        yield from [loss.detach(), *gradients(module)]
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    yield from state(module)


def forward_and_module_method(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Net()

    def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x), y) + module.encode(x).pow(2).mean()

    yield from train(wrap(module), module, loss_of, uneven(world))


def module_method_alone_in_a_step(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    for step, (x, y) in enumerate(batches(uneven(world))):
        optimizer.zero_grad(set_to_none=False)
        loss = module.encode(x).pow(2).mean() if step % 2 else F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    yield from state(module)


def perceptron(*sizes: int, act: Callable[[], nn.Module] = nn.Tanh, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip(sizes[:-2], sizes[1:-1], strict=True):
        layers += [
            nn.Linear(before, after, bias=not norm),
            nn.BatchNorm1d(after) if norm else nn.Identity(),
            act(),
        ]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def gan_with_batch_norm(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(9)
    critic, maker = perceptron(20, 32, 1, norm=True), perceptron(8, 32, 20, norm=True)
    d, g = wrap(critic), wrap(maker)
    d_step = torch.optim.SGD(critic.parameters(), 1e-2)
    g_step = torch.optim.SGD(maker.parameters(), 1e-2)
    for x, _ in batches(uneven(world)):
        fake = g(torch.randn(len(x), 8))
        d_step.zero_grad()
        (F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()).backward()
        d_step.step()
        g_step.zero_grad()
        F.softplus(-d(fake)).mean().backward()
        g_step.step()
        yield from gradients(maker)
    yield from state(critic) + state(maker)


def penalty_of(critic: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


def wgan_gradient_penalty(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(3)
    module = perceptron(20, 32, 1)
    critic, step = wrap(module), torch.optim.Adam(module.parameters(), 1e-3)
    for x, _ in batches(uneven(world)):
        fake, mix = torch.randn(len(x), 20), torch.rand(len(x), 1)
        loss = critic(fake).mean() - critic(x).mean() + 10 * penalty_of(critic, mix * x + (1 - mix) * fake)
        step.zero_grad()
        loss.backward()
        yield from gradients(module)
        step.step()
    yield from state(module)


def gradient_penalty_with_fewer_rows_than_ranks(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(3)
    module = perceptron(20, 32, 1)
    critic, step = wrap(module), torch.optim.SGD(module.parameters(), 1e-2)
    for x, _ in batches(1):
        step.zero_grad()
        penalty_of(critic, x).backward()
        yield from gradients(module)
        step.step()
    yield from state(module)


def gradients_asked_for_by_autograd_grad(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(3)
    module = Net(nn.LayerNorm)
    net, used = wrap(module), [*module.body.parameters(), *module.head.parameters()]
    for x, y in batches(world - 1):
        yield from torch.autograd.grad(F.cross_entropy(net(x), y), used)


def evaluation_decides(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.Adam(module.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(4):
        net.train()
        for x, y in batches(uneven(world), 2):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            value = sum(F.cross_entropy(net(x), y) for x, y in batches(world + 1, 2))
        assert isinstance(value, torch.Tensor)
        scheduler.step(float(value))
        yield from [value, torch.tensor(optimizer.param_groups[0]["lr"])]
    yield from state(module)


def dropout(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """The script draws from the same stream as replica 0 does, and seeds again: another seed, then the same."""
    seed(77)
    module = Net()
    net = wrap(module)
    for number in (None, 78, 78):
        if number is not None:
            seed(number)
        yield from train(net, module, lambda n, x, y: F.cross_entropy(n(x, mode="dropout"), y), uneven(world))
        yield torch.rand(3)


def two_models_draw_from_one_device(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(5)
    one, other = wrap(nn.Dropout(0.5)), wrap(nn.Dropout(0.5))
    for x, _ in batches(uneven(world)):
        yield from [one(x), other(x), torch.rand(2)]


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> Any:
        y = self.line(x)
        return (y + noise.tanh(), noise.cos(), y.sin()) if x[0, 0] > 0 else (y, noise + y, y.sin())


def input_that_some_replicas_use(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Gated()
    net = wrap(module)
    for rows in (uneven(world), world):
        for x, _ in batches(rows):
            noise = torch.ones(rows, 5).requires_grad_(True)
            module.zero_grad()
            *outputs, last = net(x, noise)
            for each in (last, *outputs):
                each.pow(2).sum().backward(retain_graph=each is not outputs[-1])
            yield from gradients(module)
            yield torch.zeros(()) if noise.grad is None else noise.grad


def inputs_that_want_gradients(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """An attack on the inputs, and two of them, with fewer rows than ranks."""
    seed(1)
    module = Net(nn.LayerNorm)
    net = wrap(module)
    for rows in (uneven(world), world - 1, 1):
        x = batches(rows)[0][0].requires_grad_(True)
        net(x).pow(2).sum().backward()
        assert x.grad is not None
        yield from [x.grad, *gradients(module)]


def attack_on_a_frozen_model(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Net(nn.LayerNorm).requires_grad_(False)
    x = batches(world + 1)[0][0].requires_grad_(True)
    wrap(module)(x).pow(2).sum().backward()
    assert x.grad is not None
    yield x.grad


class TimeMajor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.lstm(self.embed(words))[0]
        return hidden


def recurrent_along_dim_1(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = TimeMajor()
    words = torch.randint(0, 10, (7, uneven(world)))
    net, optimizer = wrap(module, dim=1), torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = net(words)
        out.pow(2).mean().backward()
        yield from [out.detach(), *gradients(module)]
        optimizer.step()


def thawed_and_replaced_after_the_wrap(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Net(nn.LayerNorm)
    module.body.requires_grad_(False)
    net = wrap(module)
    yield from train(net, module, mean_loss, uneven(world))
    module.body.requires_grad_(True)
    yield from train(net, module, mean_loss, uneven(world))
    module.head.requires_grad_(False)
    yield from train(net, module, mean_loss, uneven(world))
    module.head = nn.Linear(32, 5)
    yield from train(net, module, mean_loss, uneven(world))


def converted_after_the_wrap(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Net(nn.LayerNorm)
    net = wrap(module)
    yield from train(net, module, mean_loss, uneven(world))
    net.double()
    for x, y in batches(uneven(world)):
        net.zero_grad()
        F.cross_entropy(net(x.double()), y).backward()
        yield from gradients(module)


class Remembering(nn.Module):
    """A queue that forward writes through .data, and buffers and frozen weights that backward needs as they were left.

    One weight is written by some replicas only; one buffer is empty until the first batch, as observers' are; one grows
    by the rows of its replica; the queue lies in another order in memory from the first forward on.
    """

    lowest: torch.Tensor
    queue: torch.Tensor
    center: torch.Tensor
    bank: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bank", torch.zeros(0, 5))
        self.line, self.scale = nn.Linear(20, 5), nn.Parameter(torch.ones(5), requires_grad=False)
        self.gain = nn.Parameter(torch.ones(1, 5), requires_grad=False)
        self.register_buffer("lowest", torch.tensor([]))
        self.register_buffer("queue", torch.zeros(6, 5))
        self.register_buffer("center", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.line(x) - self.center
        self.queue.data = torch.roll(self.queue.data.t().contiguous(), 1, 1).t()
        self.queue.data[0].copy_(out.detach().mean(0))
        self.bank.data = torch.cat([self.bank, out.detach()])[-9:]
        with torch.no_grad():
            self.center.mul_(0.9).add_(out.mean(0), alpha=0.1)
            self.scale.add_(out.mean(0))
            if x[0, 0] > 0:
                self.gain.add_(out.mean(0))
            lowest = out.amin(0)
            if len(self.lowest) == 0:
                self.lowest.resize_(5).copy_(lowest)
            self.lowest.copy_(torch.minimum(self.lowest, lowest))
        return out * self.center * self.scale * self.gain - self.lowest * out + self.bank.sum()


def buffers_written_in_forward(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Remembering()
    module.queue.data[:] = 0
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.1)
    for rows in (uneven(world), world - 1):
        for x, y in batches(rows):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            yield from [*gradients(module), module.center.clone(), module.lowest.clone()]
            optimizer.step()
    net.eval()
    with torch.no_grad():
        net(batches(world)[0][0])
    yield module.center.clone()


class FunctionalNet(nn.Module):
    """Running statistics are parameters: batch norm writes into them, and no version of theirs says so."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.head = nn.Linear(20, 8, bias=False), nn.Linear(8, 5)
        self.mean = nn.Parameter(torch.zeros(8), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        line = self.line(x)
        output: torch.Tensor = self.head(F.batch_norm(line, self.mean, self.variance, training=self.training))
        return output


def running_statistics_that_are_parameters(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = FunctionalNet()
    net = wrap(module)
    yield from train(net, module, mean_loss, 4 * world)
    yield from [module.mean.clone(), module.variance.clone()]
    net.eval()
    with torch.no_grad():
        yield net(batches(4 * world)[0][0])


class Searched(nn.Module):
    """What is learned and no parameter: a plain attribute, as in DARTS, one that the loop sets, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Linear(20, 5))
        self.alphas = torch.zeros(2, requires_grad=True)
        self.register_buffer("scale", torch.ones(5).requires_grad_())
        self.prompt: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.alphas.softmax(0)
        scores = weights[0] * self.layer(x) + weights[1] * torch.tanh(self.layer(x))
        assert isinstance(self.scale, torch.Tensor)
        assert self.prompt is not None
        return scores * self.scale + (self.prompt if x[0, 0] > 0 else 0)  # not by all replicas


def learned_and_no_parameters(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(0)
    module, encoder = Searched(), nn.Linear(3, 5)
    net, learned = wrap(module), [module.alphas, module.scale, *module.parameters(), *encoder.parameters()]
    optimizer = torch.optim.SGD(learned, 0.1)
    for x, y in batches(uneven(world)):
        module.prompt = encoder(torch.ones(3))
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        yield from [torch.zeros(()) if each.grad is None else each.grad.clone() for each in learned]
        optimizer.step()
    with torch.no_grad():
        yield net(x)


def spectral_norm(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = nn.Sequential(nn.utils.spectral_norm(nn.Linear(20, 8)), nn.Tanh(), nn.Linear(8, 5))
    yield from train(wrap(module), module, mean_loss, uneven(world))


def shared_parameters(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = perceptron(20, 20, 20, 5)
    module[3].weight = module[0].weight
    yield from train(wrap(module), module, mean_loss, uneven(world))


def several_forwards_one_backward(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Net()

    def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x), y) + (net(x * 2) * net(x + 1)).mean()

    yield from train(wrap(module), module, loss_of, uneven(world))


def one_output_of_two_is_used(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    seed(1)
    module = Net(nn.LayerNorm)

    def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return net(x, None, "pair").features.pow(2).mean()  # type: ignore[no-any-return]

    yield from train(wrap(module), module, loss_of, world - 1)


def alternating_models(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """Forward passes without a backward pass, in training and in evaluation, between the steps."""
    seed(1)
    module = Net()

    def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        net(x)
        net.eval()
        net(x)
        with torch.no_grad():
            net(x)
        net.train()
        return F.cross_entropy(net(x), y)

    yield from train(wrap(module), module, loss_of, uneven(world))


def fewer_rows_than_ranks(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    for rows in (1, world - 1, world):
        seed(rows)
        module = Net(nn.LayerNorm)
        yield from train(wrap(module), module, mean_loss, rows, adam=True)


class Similar(Net):
    """How alike the rows of a chunk are, as a matrix of them, which loses the rows of a chunk of one."""

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, mode: str = "scores") -> Any:
        features = self.body(x)
        return (features @ features.t()).squeeze()


def outputs_whose_shape_is_that_of_chunks(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    for rows in (world - 1, 2 * (world - 1)):
        seed(rows)
        module = Similar(nn.LayerNorm)
        yield from train(wrap(module), module, lambda net, x, y: net(x).square().mean(), rows)


class Thrifty(Net):
    """Runs its layers again in backward, in backward passes of their own: once for each on ranks with rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, mode: str = "scores") -> Any:
        stem = self.body[0](x)
        features = checkpoint(self.body[1:], stem, use_reentrant=True)
        return checkpoint(self.head, features, use_reentrant=True)


def fewer_devices_than_ranks(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """`device_ids=gpus[:2]`, of a model beside one that has all."""
    seed(0)
    module = Net()
    yield from train(wrap(module, count=2), module, mean_loss, uneven(world))


def reentrant_checkpoints(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    for rows in (uneven(world), world - 1, world):
        seed(rows)
        module = Thrifty(nn.LayerNorm)
        yield from train(wrap(module), module, mean_loss, rows)


def penalty_under_accumulation(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """Gradients come to .grad by the model and past it, in one backward pass, beside what is there already."""
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    for step, (x, y) in enumerate(batches(uneven(world), 6)):
        loss = F.cross_entropy(net(x), y) + 0.1 * sum(p.pow(2).sum() for p in module.parameters())
        loss.backward()
        yield from gradients(module)
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    yield from state(module)


def hooks_on_parameters(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """They see the whole gradient, once, and may change it; then they go."""
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    seen: list[torch.Tensor] = []

    def clip(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(gradient.clone())
        return gradient.clamp(-0.01, 0.01)

    hooks = [module.head.weight.register_hook(clip)]
    for step, (x, y) in enumerate(batches(uneven(world), 3)):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        yield from [*seen, *gradients(module)]
        seen.clear()
        optimizer.step()
        if step == 1:
            hooks.pop().remove()


def gradients_of_some(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """backward(inputs=...), an attack on the inputs by autograd.grad, and layers frozen behind their forward."""
    seed(0)
    module = Net(nn.LayerNorm)
    net = wrap(module)
    for x, y in batches(uneven(world), 3):
        F.cross_entropy(net(x), y).backward(inputs=[module.head.weight])
        yield from gradients(module)
        x = x.clone().requires_grad_(True)
        yield from torch.autograd.grad(F.cross_entropy(net(x), y), x)
        loss = F.cross_entropy(net(x), y)
        module.body.requires_grad_(False)
        loss.backward()
        assert x.grad is not None
        yield from [x.grad, *gradients(module)]
        module.body.requires_grad_(True)


def backwards_in_any_order(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """Two forwards and then two backwards; a backward of a penalty alone in between; one output in both losses."""
    seed(0)
    module = Net()
    net, optimizer = wrap(module), torch.optim.SGD(module.parameters(), 0.05)
    for x, y in batches(uneven(world), 3):
        optimizer.zero_grad()
        first, second = net(x), net(2 * x)
        F.cross_entropy(first, y).backward(retain_graph=True)
        module.head.weight.pow(2).sum().backward()
        (F.cross_entropy(second, y) + first.pow(2).mean()).backward()
        yield from gradients(module)
        optimizer.step()
    yield from state(module)


def three_backwards_of_a_gan(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """DCGAN: each backward reaches one forward of each model; the critic's third gradients are never used."""
    seed(9)
    critic, maker = perceptron(20, 32, 1, norm=True), perceptron(8, 32, 20, norm=True)
    d, g = wrap(critic), wrap(maker)
    d_step = torch.optim.SGD(critic.parameters(), 1e-2)
    g_step = torch.optim.SGD(maker.parameters(), 1e-2)
    for x, _ in batches(uneven(world), 3):
        critic.zero_grad()
        F.softplus(-d(x)).mean().backward()
        fake = g(torch.randn(len(x), 8))
        F.softplus(d(fake.detach())).mean().backward()
        yield from gradients(critic)
        d_step.step()
        maker.zero_grad()
        F.softplus(-d(fake)).mean().backward()
        g_step.step()
        yield from gradients(maker) + gradients(critic)
    yield from state(critic) + state(maker)


def two_models_teach_each_other(wrap: Wrap, seed: Seed, world: int) -> Iterator[torch.Tensor]:
    """Deep mutual learning: two models, a loss and a backward for each."""
    seed(2)
    modules = [Net(), Net()]
    nets = [wrap(module) for module in modules]
    steps = [torch.optim.SGD(module.parameters(), 0.05, momentum=0.9) for module in modules]
    for x, y in batches(uneven(world), 3):
        scores = [net(x) for net in nets]
        losses = [
            F.cross_entropy(own, y)
            + F.kl_div(own.log_softmax(1), other.detach().softmax(1), reduction="batchmean")
            for own, other in (scores, scores[::-1])
        ]
        for step, loss in zip(steps, losses, strict=True):
            step.zero_grad()
            loss.backward()
        yield from gradients(modules[0]) + gradients(modules[1])
        for step in steps:
            step.step()


SCENARIOS: dict[str, Scenario] = {
    "mean_of_even_chunks": simple(mean_loss, 24),
    "mean_of_uneven_chunks": simple(mean_loss),
    "unused_parameters_decay": simple(mean_loss, adam=True),
    "sum_over_rows": simple(lambda n, x, y: F.cross_entropy(n(x), y, reduction="sum")),
    "contrastive_over_the_batch": simple(contrastive),
    "hardest_triplet_of_the_batch": simple(hardest_triplet),
    "loss_in_forward_mean": simple(lambda n, x, y: n(x, y, mode="loss").mean()),
    "loss_in_forward_sum": simple(lambda n, x, y: n(x, y, "loss").sum(), 12),
    "loss_without_gradient_in_a_chunk": simple(
        lambda n, x, y: n(x, torch.arange(len(x)).clamp(max=4).flip(0), "loss of 0").mean()
    ),
    "dict_output": simple(lambda n, x, y: F.cross_entropy(n(x, mode="dict")["scores"], y)),
    "tuple_output": simple(lambda n, x, y: F.cross_entropy((o := n(x, mode="tuple"))[0], y) + o[1][1].mean()),
    "namedtuple_output": simple(lambda n, x, y: F.cross_entropy(n(x, mode="pair").scores, y)),
    "outputs_written_into": simple(written_into),
    "mixup": simple(mixup),
    **{
        scenario.__name__: scenario
        for scenario in (
            inputs_written_in_forward, backward_twice_on_one_forward, accumulation,
            forward_and_module_method, module_method_alone_in_a_step, gan_with_batch_norm,
            wgan_gradient_penalty, gradient_penalty_with_fewer_rows_than_ranks,
            gradients_asked_for_by_autograd_grad, evaluation_decides, dropout,
            two_models_draw_from_one_device, inputs_that_want_gradients, input_that_some_replicas_use,
            attack_on_a_frozen_model,
            recurrent_along_dim_1, thawed_and_replaced_after_the_wrap, converted_after_the_wrap,
            buffers_written_in_forward, running_statistics_that_are_parameters,
            learned_and_no_parameters, spectral_norm, shared_parameters, several_forwards_one_backward,
            one_output_of_two_is_used, alternating_models, fewer_rows_than_ranks, fewer_devices_than_ranks,
            outputs_whose_shape_is_that_of_chunks,
            reentrant_checkpoints, penalty_under_accumulation, hooks_on_parameters, gradients_of_some,
            backwards_in_any_order, three_backwards_of_a_gan, two_models_teach_each_other,
        )
    },
}  # fmt: skip
