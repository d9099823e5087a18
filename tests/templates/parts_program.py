"""Functions of large outputs in parts, beside the same of the whole: python parts_program.py FOLDER WORLDS."""

from __future__ import annotations

import contextlib
import copy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from dp2ddp.templates import parts  # noqa: E402
from dp2ddp.templates.parts import Parts, WholeBatchInParts, make_whole  # noqa: E402
from dp2ddp.templates.rank0 import ask_rank0  # noqa: E402
from forked_ranks import find_on_ranks  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

IMAGES = (5, 3, 4, 6)  # rows, classes, height, width


class Twice(torch.autograd.Function):
    """A Function of a script's own, which torch does not show to a tensor's class."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2 + gradient.sum() / gradient.numel()


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 0) * x


def labels(*shape: int) -> torch.Tensor:
    return torch.randint(3, shape, generator=torch.Generator().manual_seed(1))


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def some_ignored() -> torch.Tensor:
    targets = labels(5, 4, 6)
    targets[0, 0] = targets[3, 1] = -100
    return targets


def write_into(x: torch.Tensor) -> torch.Tensor:
    new = x * 1
    new[1:] = 0.5
    new += numbers(*IMAGES)
    return new.clamp_(0.6)


def write_into_mask(x: torch.Tensor) -> torch.Tensor:
    mask = (torch.sigmoid(x) > 0.5).float()
    mask[mask == 0] = -1
    return x * mask


def write_elsewhere(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(IMAGES, dtype=torch.float64)
    torch.add(x.detach(), 1, out=result)
    return x * result.flip(0)


def gradient_of(value: Any, *tensors: Any) -> Any:
    return torch.autograd.grad(value, tensors, create_graph=True)[0]


Case = Callable[[Any], Any]
# Computed of the own rows: nothing is gathered.
IN_PARTS: dict[str, Case] = {
    "cross_entropy": lambda x: F.cross_entropy(x, labels(5, 4, 6)),
    "cross_entropy_module": lambda x: nn.CrossEntropyLoss()(x, labels(5, 4, 6)),
    "cross_entropy_ignored": lambda x: F.cross_entropy(x, some_ignored()),
    "cross_entropy_weights": lambda x: F.cross_entropy(x, some_ignored(), weight=numbers(3)),
    "cross_entropy_smooth": lambda x: F.cross_entropy(x, some_ignored(), label_smoothing=0.2),
    "cross_entropy_smooth_weights": lambda x: F.cross_entropy(
        x, some_ignored(), weight=numbers(3), label_smoothing=0.2
    ),
    "cross_entropy_soft": lambda x: F.cross_entropy(x, numbers(*IMAGES)),
    "cross_entropy_soft_weights": lambda x: F.cross_entropy(x, numbers(*IMAGES), weight=numbers(3)),
    "cross_entropy_sum": lambda x: F.cross_entropy(x, labels(5, 4, 6), reduction="sum"),
    "cross_entropy_none": lambda x: (
        F.cross_entropy(x, labels(5, 4, 6), reduction="none") * numbers(5, 4, 6)
    ).mean(),
    "nll_loss": lambda x: F.nll_loss(F.log_softmax(x, dim=1), some_ignored()),
    "mse_loss": lambda x: nn.MSELoss()(x, numbers(*IMAGES)),
    "l1_loss": lambda x: F.l1_loss(x, numbers(*IMAGES)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, numbers(*IMAGES), beta=0.3),
    "bce": lambda x: F.binary_cross_entropy(torch.sigmoid(x), numbers(*IMAGES)),
    "bce_with_logits": lambda x: nn.BCEWithLogitsLoss(pos_weight=numbers(6))(x, numbers(*IMAGES)),
    "bce_with_weights_of_rows": lambda x: F.binary_cross_entropy_with_logits(
        x, numbers(*IMAGES), pos_weight=numbers(5, 1, 1, 1)
    ),
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), numbers(*IMAGES), reduction="batchmean"),
    "sum": lambda x: x.sum(),
    "mean": lambda x: torch.mean(x),
    "dice": lambda x: (2 * (x.sigmoid() * numbers(*IMAGES)).sum((0, 2, 3)) / (x.sum((0, 2, 3)) + 1)).mean(),
    "mean_over_rows": lambda x: x.mean(0, keepdim=True),
    "accuracy": lambda x: (x.argmax(1) == labels(5, 4, 6)).sum() + x.sum(),
    "accuracy_by_max": lambda x: x.max(dim=1)[1].eq(labels(5, 4, 6)).float().mean() + x.max(1)[0].mean(),
    "per_pixel": lambda x: F.cross_entropy(
        x.permute(0, 2, 3, 1).contiguous().view(-1, 3), labels(5, 4, 6).view(-1)
    ),
    "flat": lambda x: F.mse_loss(x.flatten(1), numbers(5, 72)),
    "shorter": lambda x: F.mse_loss(x[:, :2, 1:], numbers(*IMAGES)[:, :2, 1:]),
    "last": lambda x: x[..., -1].pow(2).mean(),
    "interpolated": lambda x: F.cross_entropy(
        F.interpolate(x, size=(8, 12), mode="bilinear", align_corners=False), labels(5, 8, 12)
    ),
    "normalized": lambda x: (F.normalize(x, dim=1) * numbers(*IMAGES)).sum(),
    "between": lambda x: torch.where(x > 0, x, 0.1 * x).clamp(max=1).mean(),
    "of_other_parts": lambda x: F.mse_loss(x, numbers(*IMAGES)) + (x * x.detach()).mean(),
    "chunks": lambda x: (x.chunk(3, dim=1)[0] * x.chunk(3, dim=1)[2]).sum(),
    "front_dim": lambda x: x.unsqueeze(1).squeeze(1).mean(),
    "gradient": lambda x: (gradient_of(x.pow(3).mean(), x) * x).sum(),
}


# Anything else is of the whole.
def view_written_into(x: Any) -> Any:
    y = x * 1
    y.view(len(x), -1).mul_(2)
    return y


def view_of_view_written_into(x: Any) -> Any:
    y = x * 1
    rows = y.flatten(1)
    used = rows + 1  # in parts, before
    rows.t()[0] = 3  # all rows' first elements
    rows.unsqueeze(1)[rows.detach().unsqueeze(1) > 1] = -1
    return y * rows.view_as(y) + used.view_as(y)


def view_read_behind_a_write(x: Any) -> Any:
    y = x * 1
    first, second = y[:, :1], y[:, 1:]
    kept = second.sum()
    y.add_(1)
    first[:, :, 0] = 5
    return torch.cat([first, second, y], 1) * kept


def view_without_gradient(x: Any) -> Any:
    y = x * 1
    with torch.no_grad():
        kept = y.view(len(x), -1)
    return y * kept.cumsum(0).view_as(y)


WHOLE: dict[str, Case] = {
    "view_without_gradient": view_without_gradient,
    "view_written_into": view_written_into,
    "view_of_view_written_into": view_of_view_written_into,
    "view_read_behind_a_write": view_read_behind_a_write,
    "function_of_the_scripts": lambda x: Twice.apply(x),
    "scripted": scripted,
    "einsum": lambda x: torch.einsum("nchw,nchw->n", x, numbers(*IMAGES)),
    "over_rows": lambda x: x.softmax(0),
    "rows_first": lambda x: x.unsqueeze(-5).sum(0),
    "flat_rows": lambda x: x.view(-1)[7:].sum(),
    "one_row": lambda x: x[3] * 2,
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "linear": lambda x: F.linear(x, numbers(2, 6)),
    "transposed": lambda x: x.transpose(0, 1).reshape(3, -1).std(1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "written_into": write_into,
    "mask_written_into": write_into_mask,
    "copy": lambda x: copy.copy(x) + x,
    "hooked": lambda x: (lambda y: (y.register_hook(lambda g: g * 3), y * y)[1])(x * 1),
    "relu_in_place": lambda x: F.relu(x * 1, inplace=True) * 2,
    "places": lambda x: x * torch.where(x[:, 0, 0, 0] > -9)[0].sum() + torch.stack(torch.where(x > 0)).sum(),
    "smallest": lambda x: x.min() + x.max(),
    "function_of_parts": lambda x: Twice.apply(x.sigmoid()) * x,
    "by_keywords": lambda x: torch.reshape(input=x, shape=(5, -1)) + torch.mean(input=x),
    "given_to_rank0": lambda x: x + ask_rank0(lambda pairs: pairs["x"][0].detach().cumsum(0), {"x": [x]}),
    "between_functions": lambda x: (lambda y: y.sigmoid() + Twice.apply(y))(Twice.apply(x * 3)),
    "written_elsewhere": write_elsewhere,
    "gradient_of_whole": lambda x: gradient_of(x.cumsum(0).pow(2).sum(), x) * x,
    "beside_learned": lambda x: F.mse_loss(x * LEARNED.exp(), numbers(*IMAGES)) + LEARNED.sum(),
    "learned_target": lambda x: F.mse_loss(x, numbers(*IMAGES) * LEARNED),
}
LEARNED = numbers(6).requires_grad_()  # of the script's own, not of the model
# Of these, the gradient of their gradient's square.
PENALTIES: dict[str, Case] = {
    "of_mean": lambda x: F.mse_loss(x, numbers(*IMAGES)).exp(),
    "of_sum_over_rows": lambda x: x.sum(0).pow(3).mean(),
    "of_whole": lambda x: x.cumsum(0).pow(3).mean(),
}


def hook_too_late(x: Any, look: Case = len) -> Any:
    y = x * 1
    kept = y.sum()
    look(y)
    y.register_hook(lambda g: g * 2)
    return kept


def gradient_too_late(x: Any) -> Any:
    y = x * 1
    return gradient_of(y.pow(2).sum() + y.cumsum(0).pow(2).sum(), y)


def rank0_alone(x: Any) -> Any:
    return x + ask_rank0(lambda: make_whole(x).detach() * 1)


REFUSED: dict[str, Case] = {
    "hook_too_late": hook_too_late,
    "hook_behind_whole": lambda x: hook_too_late(x, lambda y: y.cumsum(0)),
    "gradient_too_late": gradient_too_late,
    "rank0_alone": rank0_alone,
}


@contextlib.contextmanager
def counting_gathers() -> Iterator[list[int]]:
    join, gathered = parts.JoinParts.apply, []

    def apply(*given: Any) -> Any:
        gathered.append(1)
        return join(*given)

    parts.JoinParts.apply = apply
    try:
        yield gathered
    finally:
        parts.JoinParts.apply = join


def compare(case: Case, whole: torch.Tensor, *, penalty: bool = False) -> dict[str, Any]:
    """How far values and gradients are from those of the whole, and whether rows were gathered."""
    counts = [len(each) for each in whole.chunk(dist.get_world_size())]
    expected = answer_of(case, whole, lambda rows: rows, penalty=penalty)
    own = whole.split(counts)[dist.get_rank()]
    with counting_gathers() as gathered:
        actual = answer_of(case, own, lambda rows: Parts.of(rows, counts), penalty=penalty)
    expected[1] = expected[1].split(counts)[dist.get_rank()]
    pairs = zip(actual, expected, strict=True)
    return {
        "difference": max((one - other).abs().max().item() for one, other in pairs),
        "gathered": len(gathered),
        "shape": [*actual[0].shape] == [*expected[0].shape],
    }


def answer_of(case: Case, rows: torch.Tensor, hold: Case, *, penalty: bool) -> list[torch.Tensor]:
    """What a case gives, and the gradients of its rows and of LEARNED."""
    leaf, LEARNED.grad = rows.clone().requires_grad_(), torch.zeros_like(LEARNED)
    value = case(hold(leaf * 1))
    if penalty:
        (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
        value = hold(gradient).pow(2).sum()
    value = make_whole(value)
    (value * numbers(*value.shape)).sum().backward()
    return [value.detach(), leaf.grad, LEARNED.grad]  # type: ignore[list-item]


def find(rank: int, world: int) -> dict[str, Any]:
    WholeBatchInParts(nn.Linear(2, 2))  # from here on, what rank 0 gets alone is made whole before
    torch.manual_seed(0)
    images = torch.randn(*IMAGES, dtype=torch.float64)
    found: dict[str, Any] = {}
    for name, case in {**IN_PARTS, **WHOLE, **REFUSED, **PENALTIES}.items():
        try:
            found[name] = compare(case, images, penalty=name in PENALTIES)
        except Exception as error:
            found[name] = {"failed": f"{error}", "where": traceback.format_exc()[-900:]}
    return found


if __name__ == "__main__":
    find_on_ranks(find, Path(sys.argv[1]), sys.argv[2])
