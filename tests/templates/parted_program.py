"""Functions of torch on rows that lie on several ranks (W = 2, 3), beside the same on the whole tensor.

python parted_program.py FOLDER [W ...]. Each check is a function of the whole as a script would write it; it is called
once with plain tensors and once with RowsOnRanks, forward, backward, and backward through the backward.
"""

from __future__ import annotations

import copy
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import rank_program
import torch
import torch.nn.functional as F
from dp2ddp.templates import loaded, parted
from dp2ddp.templates.batches import see_whole
from dp2ddp.templates.parted import RowsOnRanks, plain
from dp2ddp.templates.process import own_rank, world_size
from own_rows import own_rows_of, rows_of
from torch import nn

T = torch.Tensor
Check = Callable[[T, T, T], Any]

WIDTH = 4

# x: rows of WIDTH numbers; y: a class for each row; w: a matrix that all ranks hold.
ROW_WISE: dict[str, Check] = {
    **{
        name: lambda x, y, w, name=name: getattr(torch, name)(x)
        for name in """exp sin cos tanh sigmoid erf abs neg square relu sign floor round isnan isfinite logical_not
            expm1 positive deg2rad rad2deg frac trunc atan asinh sinh nan_to_num""".split()  # noqa: SIM905
    },
    **{
        name: lambda x, y, w, name=name: getattr(torch, name)(x.abs() + 0.1)
        for name in "log log1p log2 sqrt rsqrt reciprocal lgamma".split()  # noqa: SIM905
    },
    **{
        name: lambda x, y, w, name=name: getattr(F, name)(x)
        for name in """leaky_relu elu gelu silu softplus hardtanh relu6 selu mish hardswish softsign celu
            tanhshrink""".split()  # noqa: SIM905
    },
    "numbers": lambda x, y, w: 3 - (x * 2 + 1) / 4 + 2 ** (x / 9) + x**2 - (x % 3),
    "two tensors": lambda x, y, w: (
        torch.maximum(x, x.flip(1)) + torch.atan2(x, x.exp()) + torch.where(x > 0, x, -x)
    ),
    "in place": lambda x, y, w: (x * 1).mul_(2).add_(x).clamp_(-1, 1).masked_fill_(x.detach() > 0.5, 3.0),
    "written into": lambda x, y, w: set_columns(x * 1),
    "casts": lambda x, y, w: x.float().double() + x.to(torch.float64) + x.type_as(w) + (x > 0).long(),
    "a whole beside it": lambda x, y, w: x + torch.arange(len(x)).to(x.dtype).unsqueeze(1) * w[0],
    "broadcast": lambda x, y, w: (x.unsqueeze(2) * w).sum(2) + w[0] + x.mean(1, keepdim=True),
    "softmax": lambda x, y, w: x.softmax(1) + x.log_softmax(-1) + F.softmin(x, dim=1),
    "along dimensions": lambda x, y, w: (
        x.sum(1) + x.mean(1) + x.amax(1) + x.min(1).values + x.std(1) + x.var(1) + x.logsumexp(1)
    ),
    "norms along": lambda x, y, w: x.norm(dim=1) + x.norm(p=1, dim=1) + torch.linalg.vector_norm(x, dim=1),
    "scans and orders": lambda x, y, w: (
        x.cumsum(1) + x.cumprod(1) + x.sort(1).values + x.topk(4)[0] + x.flip(1)
    ),
    "chosen": lambda x, y, w: x.argmax(1) + x.topk(2)[1][:, 1] + (x > 0).any(1) + (x > -9).all(1),
    "normalised": lambda x, y, w: F.normalize(x) + F.cosine_similarity(x, w[:1]).unsqueeze(1),
    "gathered": lambda x, y, w: x.gather(1, y.unsqueeze(1)).squeeze(1) + x[:, 2],
    "one hot by hand": lambda x, y, w: torch.zeros_like(x).scatter_(1, y.unsqueeze(1), 1.0) * x,
    "views": lambda x, y, w: (
        x.view(len(x), 2, 2)
        .permute(1, 0, 2)
        .transpose(0, 1)
        .reshape(-1, 4)[:, 1:]
        .unsqueeze(1)
        .squeeze(1)
        .flatten(1)
    ),
    "more rows in a row": lambda x, y, w: x.reshape(-1, 2) * 2 + x.contiguous().view(-1, 2),
    "one vector": lambda x, y, w: x.reshape(-1).exp(),
    "expanded": lambda x, y, w: x.unsqueeze(1).expand(-1, 3, -1) * 2,
    "split": lambda x, y, w: x.chunk(2, 1)[0] * x.split(2, dim=1)[1] + x.unbind(1)[0].unsqueeze(1),
    "cat": lambda x, y, w: (
        torch.cat([x, x.exp()], 1).sum(1, keepdim=True) + torch.stack([x, x.sin()]).mean(0)
    ),
    "matrices": lambda x, y, w: x @ w + F.linear(x, w, w[0]) + torch.einsum("bi,ij->bj", x, w),
    "looked up": lambda x, y, w: F.embedding(y, w) * x,
    "columns": lambda x, y, w: x[..., 1:3] * x[:, -1:],
    "rows that follow each other": lambda x, y, w: x[1:] * 2,
    "losses of each row": lambda x, y, w: (
        F.cross_entropy(x, y, reduction="none") + F.mse_loss(x, x.sin(), reduction="none").sum(1)
    ),
    "dropout of none": lambda x, y, w: F.dropout(x, 0.5, training=False),
}
ADDED_UP: dict[str, Check] = {
    "sums": lambda x, y, w: x.sum() + x.sum(0) + x.sum((0, 1)) + x.sum(0, keepdim=True) + (x > 0).sum(),
    "means": lambda x, y, w: x.mean() + x.mean(0) + (x**2).mean((0, 1)) + x.mean(dim=0, keepdim=True),
    "extremes": lambda x, y, w: x.max() + x.min() + (x > 0).any() + (x > -99).all(),
    "norm": lambda x, y, w: x.norm() + torch.linalg.vector_norm(x, 3) + x.norm(1),
    "cross entropy": lambda x, y, w: F.cross_entropy(x, y) + nn.CrossEntropyLoss(reduction="sum")(x, y),
    "classes left out": lambda x, y, w: F.cross_entropy(x, y, ignore_index=1),
    "class weights": lambda x, y, w: F.cross_entropy(x, y, weight=w[0].detach().abs()),
    "labels smoothed": lambda x, y, w: F.cross_entropy(x, y, label_smoothing=0.1),
    "probabilities of classes": lambda x, y, w: F.cross_entropy(x, x.detach().softmax(1)),
    "pictures of classes": lambda x, y, w: F.cross_entropy(
        x.view(-1, 2, 2, 1), (y % 2).view(-1, 1, 1).expand(-1, 2, 1)
    ),
    "nll": lambda x, y, w: nn.NLLLoss()(x.log_softmax(1), y),
    "mse": lambda x, y, w: F.mse_loss(x, x.sin()) + nn.MSELoss(reduction="sum")(x, torch.ones_like(x)),
    "l1": lambda x, y, w: F.l1_loss(x, torch.zeros(x.shape, dtype=x.dtype)),
    "smooth": lambda x, y, w: F.smooth_l1_loss(x, x.cos()) + F.huber_loss(x, x.detach() + 1, delta=0.3),
    "bce": lambda x, y, w: F.binary_cross_entropy(x.sigmoid(), (x > 0).to(x.dtype)),
    "bce with logits": lambda x, y, w: F.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).to(x.dtype), pos_weight=w[0].detach().abs()
    ),
    "kl": lambda x, y, w: F.kl_div(x.log_softmax(1), x.detach().sin().softmax(1), reduction="batchmean"),
    "soft margin": lambda x, y, w: F.soft_margin_loss(x, x.detach().sign()),
    "a loss's gradient looked at": lambda x, y, w: looked_at(x, F.cross_entropy, y),
    "a pair loss's gradient looked at": lambda x, y, w: looked_at(x, F.mse_loss, x.detach().sin()),
    "accuracy": lambda x, y, w: (
        (x.argmax(1) == y).double().mean() + x.topk(2, 1)[1].t().eq(y.view(1, -1)).sum()
    ),
    "weighted by hand": lambda x, y, w: (
        (F.cross_entropy(x, y, reduction="none") * (y > 1)).sum() / ((y > 1).sum() + 1)
    ),
    "a learned temperature": lambda x, y, w: F.cross_entropy(x * w[0, 0], y) + (x * w[1]).sum(),
    "a layer behind it": lambda x, y, w: F.linear(x.relu(), w, w[0]).pow(2).mean(),
    "products over rows": lambda x, y, w: x.t() @ x + x.t().mm(x.exp()),
    "numbers asked for": lambda x, y, w: torch.tensor(
        [x.sum().item(), float(x.mean()), float(len(x)), float(x.numel())]
    ),
    "shape": lambda x, y, w: torch.tensor(
        [float(x.shape[0]), x.size(0), len(x), x.numel(), *x.shape, *y.shape]
    ),
    "gradient penalty": lambda x, y, w: (
        torch.autograd.grad((x**3 @ w).sum(), x, create_graph=True)[0].norm(2, dim=1).sub(1).pow(2).mean()
    ),
}
WHOLE: dict[str, Check] = {
    "columns picked": lambda x, y, w: x[:, torch.tensor([2, 0])] + x.prod(1, keepdim=True),
    "layer norm": lambda x, y, w: F.layer_norm(x, (WIDTH,)) + F.logsigmoid(x),
    "a view set": lambda x, y, w: set_view(x * 1),
    "couples rows": lambda x, y, w: F.normalize(x) @ F.normalize(x).t(),
    "distances": lambda x, y, w: torch.cdist(x, x + 1),
    "spread over rows": lambda x, y, w: x.std(0) + x.var(0),
    "rows one after the other": lambda x, y, w: torch.cat([x, x * 2]).cumsum(0),
    "rows picked": lambda x, y, w: (
        x[1:3].sum() + x[y > 0].sum() + x[0, 0] + x[torch.arange(len(x)), y].sum() + x[-1]
    ),
    "shuffled": lambda x, y, w: (
        x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))] * 0.3 + x * 0.7
    ),
    "rows sorted": lambda x, y, w: x.sort(0).values + x.max(0).values,
    "every second": lambda x, y, w: x[::2],
    "batch norm": lambda x, y, w: F.batch_norm(x.repeat(2, 1), None, None, training=True),
    "a convolution": lambda x, y, w: F.conv1d(x.unsqueeze(1), w[:1, :2].unsqueeze(0)),
    "written by index": lambda x, y, w: set_by_index(x * 1, y),
    "a row set": lambda x, y, w: set_row(x * 1),
    "a loop": lambda x, y, w: sum((row.exp() for row in x), start=w[0] * 0),
    "a Function": lambda x, y, w: Cubed.apply(x) + Cubed.apply(x[:, :1]),
    "scripted": lambda x, y, w: scripted(x),
    "a tolist": lambda x, y, w: torch.tensor(x.tolist()),
    "numpy": lambda x, y, w: torch.from_numpy(
        numpy.asarray(x.detach()) + x.detach().numpy() + x.detach().cpu().numpy()
    ),
    "torch.ops": lambda x, y, w: torch.ops.aten.roll(x, [1], [0]),
    "dlpack": lambda x, y, w: torch.from_dlpack((x * 1).detach()) + 0,
    "dlpack of a view": lambda x, y, w: torch.from_dlpack(x.detach()) + 0,
    "copied": lambda x, y, w: copy.deepcopy(x.detach()) + x,
    "saved": lambda x, y, w: saved_and_loaded(x.detach()),
    "printed": lambda x, y, w: torch.tensor([float(sum(map(ord, f"{x.detach()} {x.detach()!r}")))]),
    "compared": lambda x, y, w: torch.tensor(
        [float(torch.equal(x, x)), float(torch.allclose(x, x + 1)), float(x.is_pinned())]
    ),
    "drawn beside it": lambda x, y, w: drawn(x),
    "dropout": lambda x, y, w: seeded(lambda: F.dropout(x, 0.5)),
    "kept and put together": lambda x, y, w: torch.cat([each.detach() for each in [x, x * 2, x[:1]]]),
    "a triplet": lambda x, y, w: torch.addmm(x @ x.t(), x, x.t(), alpha=-2.0),
    "another first or last row": lambda x, y, w: torch.tensor(
        [
            float(torch.equal(x, torch.cat([x[:-1], x[-1:] + n]))) + 2 * torch.equal(x + n * (x[:1] < 99), x)
            for n in (0, 1)
        ]
    ),
    "random slopes": lambda x, y, w: seeded(lambda: F.rrelu(x.detach(), training=True)),
    "numpy of a view, written into": lambda x, y, w: write_into_shared_numpy(x * 1),
    "Variable and data": lambda x, y, w: (
        torch.autograd.Variable(x).sort(0)[0] + x.data.cumsum(0) + x.detach().flip(0)
    ),
    "hooked": lambda x, y, w: hooked(x),
}


# x, y: a batch as a loader gives it, which each rank has in memory that it may not change.
BATCHES: dict[str, Callable[[T, T], Any]] = {
    "as it is": lambda x, y: x * 1,
    "moved": lambda x, y: x.to(torch.float32).cpu().double()[1:],
    "scaled in place": lambda x, y: x.mul_(2).add_(1),
    "a column scaled in place": lambda x, y: (x[:, 0].mul_(3), x)[1],
    "columns set": lambda x, y: set_columns(x),
    "rows set": lambda x, y: (x.__setitem__(slice(0, 2), 7.0), x)[1],
    "a moved one set": lambda x, y: (z := x.to(torch.float32), z.__setitem__(0, 1.0), x.float() + z)[2],
    "moved, then changed": lambda x, y: (z := x.to(torch.float32), x.zero_(), z.flip(0) + x.float())[2],
    "mixed up": lambda x, y: (
        0.3 * x + 0.7 * x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))]
    ),
    "normalised over the batch": lambda x, y: (x - x.mean(0)) / x.std(0),
    "numpy, written into": lambda x, y: (x.numpy().__setitem__(0, 5.0), x)[1],
    "numpy of a view": lambda x, y: torch.from_numpy(x[:, 1:].numpy() * 2),
    "numpy of its data, written into": lambda x, y: (x.data.numpy().__setitem__(0, 5.0), x + x.data)[1],
    "its storage": lambda x, y: (torch.frombuffer(x.numpy().data, dtype=x.dtype).zero_(), x)[1],
    "one by one": lambda x, y: torch.stack([row * 2 for row in x]),
    "a row of a view that stays": lambda x, y: (z := x.t(), x.__setitem__(1, 4.0), z[0].mul_(2), x + z.t())[
        3
    ],
    "summed, then changed": lambda x, y: (z := x.sum(), x.mul_(2), x * z)[2],
    "labels": lambda x, y: torch.zeros(len(y), WIDTH).scatter_(1, y.view(-1, 1), 1.0),
}


def set_columns(x: T) -> T:
    x[:, 0] = 2.0
    x[:, 1] += 1
    x.t()[2] *= 3
    return x


def set_by_index(x: T, y: T) -> T:
    x[torch.arange(len(x)), y] = 5.0
    return x * 2


def set_row(x: T) -> T:
    x[0] = 1.0
    x[0] += x[-1].detach()
    return x


def write_into_shared_numpy(x: T) -> T:
    x.detach().numpy()[0] = 3.0  # reaches x, if it is a plain tensor
    return x


def set_view(x: T) -> T:
    x.select(0, 0).fill_(1.0)
    x.view(-1)[2] = 7.0
    return x


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: T) -> T:
        return gradient * 3 * ctx.saved_tensors[0] ** 2


def scripted(x: T) -> T:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated; scripts have it
        found: T = torch.jit.script(weighted_rows)(x)
    return found


def weighted_rows(x: T) -> T:
    total = torch.zeros_like(x[0])
    for row in range(x.size(0)):
        total = total + x[row] * float(row)
    return total


def saved_and_loaded(x: T) -> T:
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    found: T = torch.load(file)["x"]
    assert type(found) is T
    return found


def seeded(draw: Callable[[], T]) -> T:
    torch.manual_seed(3)
    return draw()


def drawn(x: T) -> T:
    return seeded(lambda: torch.rand_like(x) + torch.randn(x.shape, dtype=x.dtype)) * x


def hooked(x: T) -> T:
    seen: list[T] = []
    z = x * 2
    z.register_hook(lambda gradient: seen.append(gradient.sum()) or gradient * 2)
    z.retain_grad()
    z.pow(2).sum().backward(retain_graph=True)
    return torch.stack([seen[0], z.grad.sum(), z.grad.std(0).sum()])


def looked_at(x: T, loss: Callable[[T, T], T], target: T) -> T:
    """What hooks and the script see of a loss's gradient, write into it, and let go on."""
    seen: list[T] = []
    z = x * 2
    columns = z.reshape(len(z), -1)
    columns.register_hook(lambda gradient: seen.append(gradient.exp()) or gradient)
    z.register_hook(lambda gradient: seen.append(gradient.t().cumsum(0).t()) or gradient * 2)
    z.retain_grad()
    loss(columns, target).backward(retain_graph=True)
    before = z.grad * 1
    view = z.grad.unsqueeze(1)
    view.add_(1)
    z.grad[:, 0] = 5.0
    return torch.cat([z.grad, before, view.squeeze(1), *seen], 1)


def numbers_of(
    check: Check, x: T, y: T, w: T, as_rows: Callable[[T], T], again: Callable[[], None] = lambda: None
) -> list[T]:
    """What a check gives; the gradients of x and w; and those of the gradients' squares, behind again()."""
    a, b = x.clone().requires_grad_(x.is_floating_point()), w.clone().requires_grad_()
    out = check(as_rows(a), as_rows(y), b)
    found = [as_plain(out).detach()]
    if not out.requires_grad:
        return found
    gradients = torch.autograd.grad(as_plain(out).pow(2).sum(), (a, b), allow_unused=True, create_graph=True)
    first = [each for each in gradients if each is not None]
    found += [as_plain(each).detach() for each in first]
    again()
    squares = [each.pow(2).sum() for each in first if each.requires_grad]
    if squares:
        second = torch.autograd.grad(torch.stack(squares).sum(), (a, b), allow_unused=True)
        found += [as_plain(each).detach() for each in second if each is not None]
    return found


def as_plain(value: T) -> T:
    return plain(value) if isinstance(value, RowsOnRanks) else value


def chunk_sizes(rows: int) -> tuple[int, ...]:
    size = -(-rows // world_size())
    return tuple(max(min(size, rows - rank * size), 0) for rank in range(world_size()))


def in_front(tensor: T, sizes: tuple[int, ...]) -> T:
    """Rows along the first dimension."""
    return rows_of(own_rows_of(tensor, sizes), sizes)


def in_columns(tensor: T, sizes: tuple[int, ...]) -> T:
    """The same, as they lie in memory when the wrapped model has its rows along dim=1."""
    if tensor.dim() < 2:
        return in_front(tensor, sizes)
    return rows_of(own_rows_of(tensor.t().contiguous(), sizes, 1), sizes, 1).t()


# The whole tensors beside them, which lie so in memory: what is drawn for them comes in that order.
AS_WHOLE: dict[Any, Callable[[T], T]] = {
    in_front: lambda tensor: tensor * 1,
    in_columns: lambda tensor: tensor.t().contiguous().t() if tensor.dim() > 1 else tensor * 1,
}


def compare(
    check: Check, rows: int, dtype: torch.dtype, part: Callable[[T, tuple[int, ...]], T]
) -> dict[str, Any]:
    torch.manual_seed(rows)
    x, y, w = torch.randn(rows, WIDTH), torch.randint(0, WIDTH, (rows,)), torch.randn(WIDTH, WIDTH)
    x, w, sizes = x.to(dtype), w.to(dtype), chunk_sizes(rows)
    made_whole: list[str] = []
    in_forward_and_backward: list[str] = []
    original = parted.run_on_whole

    def noting(func: Any, args: Any, kwargs: Any) -> Any:
        made_whole.append(func.name())
        return original(func, args, kwargs)

    wanted = numbers_of(check, x, y, w, AS_WHOLE[part])
    parted.run_on_whole = noting
    try:
        found = numbers_of(
            check,
            x,
            y,
            w,
            lambda tensor: part(tensor, sizes),
            lambda: in_forward_and_backward.extend(made_whole),
        )
    finally:
        parted.run_on_whole = original
    assert len(found) == len(wanted)
    return {
        "difference": max(rank_program.relative_difference(a, b) for a, b in zip(found, wanted, strict=True)),
        "kinds": [str(a.dtype) for a in found] == [str(b.dtype) for b in wanted],
        "made whole": in_forward_and_backward,
        "numbers": len(found),
    }


def compare_batch(check: Callable[[T, T], Any], make: Callable[[tuple[T, T]], tuple[T, T]]) -> dict[str, Any]:
    torch.manual_seed(5)
    x, y = (
        torch.randn(2 * world_size() + 1, WIDTH, dtype=torch.float64),
        torch.randint(0, WIDTH, (2 * world_size() + 1,)),
    )
    before = x.clone()
    wanted = check(x.clone(), y.clone())
    found = check(*make((x, y)))
    return {
        "difference": rank_program.relative_difference(as_plain(found), wanted),
        "untouched": torch.equal(x, before),
    }


def loaded_apart(batch: tuple[T, T]) -> tuple[T, T]:
    """As each rank loads its own rows of it."""
    sizes = chunk_sizes(len(batch[0]))
    whole: tuple[T, T] = see_whole(tuple(one.split(sizes)[own_rank()] for one in batch), sizes)
    return whole


def loaded_small(batch: tuple[T, T]) -> tuple[T, T]:
    """The same, so small that it travels with the next forward pass, which has not been yet."""
    loaded.SMALL_WHOLE = 64 * 1024
    return loaded_apart(batch)


def loaded_and_come(batch: tuple[T, T]) -> tuple[T, T]:
    """The same behind the forward pass."""
    found = loaded_small(batch)
    for one in list(loaded.WAITING.values()):
        one.make_whole()
    return found


MAKERS = {
    "shared": lambda whole: parted.part_whole(whole, parted.partable_in(whole)),
    "apart": loaded_apart,
    "small": loaded_small,
    "come": loaded_and_come,
}


def all_checks() -> Iterator[tuple[str, Check]]:
    for kind, checks in (("row-wise", ROW_WISE), ("added up", ADDED_UP), ("whole", WHOLE)):
        for name, check in checks.items():
            yield f"{kind}: {name}", check


def with_a_factor_ahead(check: Check) -> Check:
    """The check, with gradients that hold three times what they are on their way through a loss."""

    def call(x: T, y: T, w: T) -> Any:
        parted.GradientFactor.now = 3.0
        return check(x, y, w)

    return call


def cases(world: int) -> Iterator[tuple[str, tuple[int, torch.dtype, Callable[[T, tuple[int, ...]], T]]]]:
    yield "uneven", (2 * world + 1, torch.float64, in_front)
    yield "float32", (2 * world + 1, torch.float32, in_front)
    yield "bfloat16", (2 * world + 1, torch.bfloat16, in_front)
    yield "in columns", (2 * world + 1, torch.float64, in_columns)
    yield "one row each", (world, torch.float64, in_front)
    yield "ranks without rows", (world + 1, torch.float64, in_front)
    yield "one row in all", (1, torch.float64, in_front)


def work(world: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    loaded.SMALL_WHOLE = -1  # so that everything is large
    for name, check in all_checks():
        for case, chosen in cases(world):
            found[f"{name}, {case}"] = rank_program.attempt(lambda c=check, o=chosen: compare(c, *o))  # type: ignore[misc]
    for name, check in all_checks():
        if name.startswith("added up"):
            chosen = (2 * world + 1, torch.float64, in_front)
            found[f"{name}, a factor ahead"] = rank_program.attempt(
                lambda c=check, o=chosen: compare(with_a_factor_ahead(c), *o)  # type: ignore[misc]
            )
            parted.GradientFactor.now = 1.0
    for name, batch_check in BATCHES.items():
        for kind, make in MAKERS.items():
            loaded.SMALL_WHOLE = -1
            found[f"{kind} batch: {name}"] = rank_program.attempt(
                lambda c=batch_check, m=make: compare_batch(c, m)  # type: ignore[misc]
            )
    return found


if __name__ == "__main__":
    rank_program.run_ranks(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or (2, 3), work)
