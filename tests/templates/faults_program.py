"""What scripts do with rows beside computing, and what goes wrong around them, on forked ranks (W = 2, 3).

python faults_program.py FOLDER [W ...]. Each check returns facts; test_faults.py says what they must be.
"""

from __future__ import annotations

import copy
import io
import logging
import logging.config
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import rank_program
import torch
import torch._dynamo
import torch.nn.functional as F
from dp2ddp.templates.ddp import ExactDDP
from dp2ddp.templates.half import HalfPrecision
from dp2ddp.templates.process import exchange, own_rank, world_size
from dp2ddp.templates.rank_zero_output import (
    object_on_rank_zero,
    on_rank_zero,
    open_on_rank_zero,
    save_on_rank_zero,
)
from dp2ddp.templates.tracking import tracker_on_rank_zero
from own_rows import own_rows_of, rows_of
from reference import Devices, ReferenceDataParallel
from torch import nn

T = torch.Tensor
FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()


def whole() -> T:
    torch.manual_seed(1)
    return torch.randn(2 * world_size() + 1, 5, dtype=torch.float64)


def rows(x: T | None = None) -> T:
    """The same numbers, of which each rank holds its rows."""
    x = whole() if x is None else x
    size = -(-len(x) // world_size())
    sizes = tuple(max(min(size, len(x) - rank * size), 0) for rank in range(world_size()))
    return rows_of(own_rows_of(x, sizes), sizes)


def raised(work: Callable[[], Any]) -> str:
    """What it raises, in its first words."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def said_by(handler: Any, *things: Any) -> None:
    logger = logging.getLogger("rows")
    logger.propagate = False
    logger.handlers, level = [handler], logger.level
    logger.setLevel(logging.INFO)
    try:
        for each in things:
            logger.info("%s", each)
        logger.info("%(x)s", {"x": things[0]})
        logger.debug("%s", things[0])
        logger.info(things[0])
    finally:
        logger.handlers = []
        logger.setLevel(level)


def log_file() -> Any:
    """Rank 0 alone has the file's handler, and formats what all ranks hand over."""
    place, wanted = FOLDER / f"log{world_size()}", io.StringIO()
    handler = object_on_rank_zero(logging.FileHandler, place)
    said_by(handler, rows(), rows()[:, 0])
    exchange(None)
    said_by(logging.StreamHandler(wanted), whole(), whole()[:, 0])
    handler.close()
    return exchange(place.read_text() == wanted.getvalue() if own_rank() == 0 else None)[0]


class Writer:
    """As a SummaryWriter: makes numbers of what it gets."""

    def __init__(self, folder: str) -> None:
        self.folder, self.seen = folder, []

    def add(self, tag: str, values: Any, step: int = 0) -> None:
        self.add_all({tag: values})

    def add_all(self, values: dict[str, Any]) -> None:
        self.seen += [(tag, numpy.asarray(each.detach()).sum()) for tag, each in values.items()]

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *args: object) -> None:
        self.seen.append("left")


def tracker() -> Any:
    """What a tracker gets, rank 0 gets whole."""
    made = tracker_on_rank_zero(Writer, "runs")
    made.add("a", rows())
    made.add("b", values=rows().exp(), step=3)
    made.add_all({"c": rows(), "d": whole()})
    with made as entered:
        entered.add("e", rows()[:, 1:])
    x = whole().numpy()
    wanted = [
        ("a", x.sum()),
        ("b", numpy.exp(x).sum()),
        ("c", x.sum()),
        ("d", x.sum()),
        ("e", x[:, 1:].sum()),
        "left",
    ]
    return [tuple(one) if isinstance(one, list) else one for one in made.seen] == wanted


def what_only_rank_0_has() -> Any:
    """Handed to an object that the other ranks have nothing of: they say so, and rank 0 need not wait."""
    made = object_on_rank_zero(Writer, "runs")
    if own_rank() == 0:
        return []
    return [
        raised(lambda: made.add("a", rows())),
        raised(lambda: made.child.add_all({"c": [rows()]})),
        raised(lambda: made.__setitem__("c", rows())),
    ]


def logs_set_up_at_once() -> Any:
    """By dictConfig, on rank 0: the other ranks make the same records."""
    place = FOLDER / f"set up {world_size()}"
    text, quiet = {"class": "logging.FileHandler", "filename": str(place)}, {"level": "ERROR"}
    settings = {
        "version": 1,
        "handlers": {"file": text},
        "loggers": {"told": {"level": "DEBUG", "handlers": ["file"], "propagate": False}, "quiet": quiet},
    }
    on_rank_zero(logging.config.dictConfig, settings)
    logging.getLogger("told").debug("%s", rows())
    logging.getLogger("told").info("%d rows", len(rows()))
    logging.getLogger("told.below").warning("%s", {"x": [rows()]})
    logging.getLogger("quiet").info("%s", rows())
    exchange(None)
    return place.read_text() == f"{whole()}\n{len(whole())} rows\n{ {'x': [whole()]} }\n"


def one_rank_alone() -> Any:
    """One rank asks for all rows where the others do not come by: refused at once."""
    x = rows()
    return exchange(raised(lambda: on_rank_zero(lambda: float(x.cumsum(0)[-1, 0]))))


def in_a_thread() -> Any:
    x, found = rows(), []
    thread = threading.Thread(target=lambda: found.append(raised(lambda: x.cumsum(0))))
    thread.start()
    thread.join()
    return found[0]


def files() -> Any:
    """Written by rank 0, formatted by all."""
    place = str(FOLDER / f"text{world_size()}")
    with open_on_rank_zero(place, "w") as file:
        file.write(f"{rows()}")
        print(rows(), file=file)
        numpy.savetxt(file, rows().numpy())
    wanted = io.StringIO()
    wanted.write(f"{whole()}")
    print(whole(), file=wanted)
    numpy.savetxt(wanted, whole().numpy())
    save_on_rank_zero({"rows": rows(), "more": [rows()[:, 1]]}, place + ".pt")
    saved = torch.load(place + ".pt")
    return [
        Path(place).read_text() == wanted.getvalue(),
        torch.equal(saved["rows"], whole()) and type(saved["rows"]) is T,
        torch.equal(saved["more"][0], whole()[:, 1]),
    ]


def copies() -> Any:
    x, w = rows(), whole()
    found = {
        "pickle": pickle.loads(pickle.dumps(x)),
        "in a dict": pickle.loads(pickle.dumps({"x": [x]}))["x"][0],
        "deepcopy": copy.deepcopy(x.detach()),
        "copy": copy.copy(x.detach()),
        "clone": x.clone(),
        "numpy": torch.from_numpy(x.numpy()),
        "array": torch.from_numpy(numpy.array(x)),
        "stack": torch.from_numpy(numpy.stack([row.numpy() for row in x])),
        "list": torch.tensor(x.tolist(), dtype=torch.float64),
        "iterated": torch.stack(list(x)),
        "zipped": torch.stack([a + b for a, b in zip(x, w, strict=True)]) - w,
        "reversed": torch.flip(torch.stack(list(reversed(x))), [0]),
        "unbound": torch.stack(x.unbind()),
        "indexed": torch.stack([x[i] for i in range(len(x))]),
        "from behind": torch.stack([x[-i - 1] for i in range(len(x))]).flip(0),
        "by a list": x[list(range(len(x)))],
        "by a mask": x[torch.ones(len(x), dtype=torch.bool)],
        "by numpy": x[numpy.arange(len(x))],
        "split": torch.cat(x.split(2)),
        "tensor": torch.tensor(numpy.asarray(x)),
        "as_tensor": torch.as_tensor(x),
        "contiguous": x.t().contiguous().t(),
    }
    return [name for name, each in found.items() if not same(each, w)]


def same(one: T, other: T) -> bool:
    return one.shape == other.shape and torch.equal(one + 0, other + 0)


def an_epoch() -> Any:
    """Outputs that are kept over an epoch, and put together in every way that scripts have."""
    kept = [(rows(whole() + i), whole() + i) for i in range(5)]
    x, w = ([each[part] for each in kept] for part in (0, 1))
    lists: list[float] = []
    for each in x:
        lists.extend(each[:, 0].cpu().numpy())
    found = [
        (torch.cat(x), torch.cat(w)),
        (torch.vstack(x), torch.vstack(w)),
        (torch.stack(x).mean(0), torch.stack(w).mean(0)),
        (torch.from_numpy(numpy.concatenate([each.numpy() for each in x])), torch.cat(w)),
        (torch.tensor(lists), torch.cat(w)[:, 0].float()),
        (torch.cat(x, 1), torch.cat(w, 1)),
        (torch.stack([each.mean() for each in x]), torch.stack([each.mean() for each in w])),
        (sum(x[1:], x[0]), sum(w[1:], w[0])),
    ]
    return [
        number for number, (one, other) in enumerate(found) if not torch.allclose(one.to(other.dtype), other)
    ]


def counted() -> Any:
    """What a script adds up by hand, as its owner may have written it after the conversion."""
    x, y = rows(), rows(torch.arange(float(len(whole()))))
    seen = 0
    seen += x.size(0)
    confusion = torch.zeros(5, 5)
    for t, p in zip(y.view(-1), x.argmax(1).view(-1), strict=True):
        confusion[int(t) % 5, p.long()] += 1
    plain, labels = whole(), torch.arange(len(whole()))
    wanted = torch.zeros(5, 5)
    for t, p in zip(labels, plain.argmax(1), strict=True):
        wanted[int(t) % 5, p] += 1
    _, found = x.topk(3, 1, True, True)
    correct = found.t().eq(y.view(1, -1).expand_as(found.t()))
    _, should = plain.topk(3, 1, True, True)
    hits = should.t().eq(labels.view(1, -1).expand_as(should.t()))
    return [
        seen == len(plain),
        torch.equal(confusion, wanted),
        torch.equal(correct[:3].reshape(-1).float().sum(0), hits[:3].reshape(-1).float().sum(0)),
        float((x.argmax(1) == y).sum()) == float((plain.argmax(1) == labels).sum()),
        numpy.bincount(x.argmax(1).numpy(), minlength=5).tolist()
        == torch.bincount(plain.argmax(1), minlength=5).tolist(),
        x.shape[0] == len(x) == len(plain) and x.nelement() == plain.nelement(),
        sorted(x[:, 0].tolist()) == sorted(plain[:, 0].tolist()),
        bool(x.max() == plain.max()) and float(torch.quantile(x, 0.3)) == float(torch.quantile(plain, 0.3)),
    ]


def with_compiled(backend: str) -> Any:
    """Functions that are compiled, and get rows: losses, metrics, the step behind the forward."""

    def loss(x: T, w: T) -> T:
        return (F.softmax(x @ w, 1).log() * x).sum(1).mean()

    def couples(x: T, w: T) -> T:
        z = F.normalize(x @ w)
        return (z @ z.t()).exp().sum() / x.shape[0]

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3).double()

        def forward(self, x: T, w: T) -> T:
            return F.cross_entropy(self.layer(x @ w), torch.arange(len(x)) % 3)

    torch.manual_seed(2)
    found = []
    for function in (loss, couples, Head()):
        answers = []
        for make, run in ((whole, function), (rows, torch.compile(function, backend=backend))):
            x = whole().requires_grad_()
            w = torch.eye(5, dtype=torch.float64).add(0.1).requires_grad_()
            out = run(x if make is whole else rows(x), w)
            out.backward()
            answers.append([out.detach() + 0, x.grad + 0, w.grad + 0])
        found.append(
            max(float((one - other).abs().max()) for one, other in zip(*answers, strict=True)) < 1e-10
        )
    return {"right": found, "graphs of helpers": frames_of_helpers()}


def frames_of_helpers() -> list[str]:
    """What torch.compile has made graphs of in the helpers: it would do so again for each shape."""
    made = [code() for code in torch._dynamo.convert_frame.output_codes.seen]
    return sorted(
        {code.co_name for code in made if code is not None and "/templates/parted" in code.co_filename}
    )


def compiled_eager() -> Any:
    return with_compiled("eager")


def compiled_inductor() -> Any:
    return with_compiled("inductor")


class HalfLater(nn.Module):
    """Computes in float16 from its second step on: by itself, or as the script around it says."""

    def __init__(self, is_inside: bool) -> None:
        super().__init__()
        self.line, self.is_inside, self.step = nn.Linear(3, 3), is_inside, nn.Parameter(torch.zeros(1))
        self.steps = [False, True, True]

    def forward(self, x: T, step: int) -> T:
        with torch.autocast("cpu", torch.float16, enabled=self.is_inside and self.steps[step]):
            return self.line(x).float() + 0 * self.step


def gradients_in_half(make: Callable[[nn.Module], nn.Module], is_inside: bool) -> list[list[float]]:
    """Gradients of 40,000 where the numbers of float16 end at 65,504, from the second step on."""
    torch.manual_seed(3)
    module = HalfLater(is_inside)
    net, found = make(module), []
    for step in range(3):
        with torch.autocast("cpu", torch.float16, enabled=not is_inside and step > 0):
            (net(torch.ones(world_size(), 3), step).sum() * 40000.0).backward()
        assert module.line.weight.grad is not None
        found.append(module.line.weight.grad.reshape(-1).tolist())
        module.zero_grad()
    return found


def float16_from_a_later_step() -> Any:
    """[by itself, by the script] of gradients that are finite, and DataParallel's."""
    devices, found = Devices(), []
    devices.seed(1)
    for is_inside in (True, False):
        HalfPrecision.seen, HalfPrecision.is_named = False, None
        ours = gradients_in_half(ExactDDP, is_inside)
        wanted = gradients_in_half(
            lambda module: ReferenceDataParallel(module, devices, world_size(), 0), is_inside
        )
        found.append([numpy.allclose(one, other, rtol=1e-2) for one, other in zip(ours, wanted, strict=True)])
    return found


CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check
    for check in (
        files,
        copies,
        an_epoch,
        counted,
        one_rank_alone,
        in_a_thread,
        float16_from_a_later_step,
        compiled_eager,
        compiled_inductor,
        log_file,
        tracker,
        logs_set_up_at_once,
        what_only_rank_0_has,
    )
}


def work(world: int) -> dict[str, Any]:
    """All checks on this rank, in the same order on every rank."""
    asked = sys.argv[3:] and sys.argv[3].split(",")
    return {name: rank_program.attempt(check) for name, check in CHECKS.items() if not asked or name in asked}


if __name__ == "__main__":
    rank_program.run_ranks(Path(sys.argv[1]), map(int, sys.argv[2].split(",")), work)
