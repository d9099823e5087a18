"""What the templates must do on ranks besides training. Each check returns facts; ranks return the same ones."""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import itertools
import os
import pickle
import queue
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from dp2ddp.templates import ddp
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.feed import Fed, feed
from dp2ddp.templates.in_turn import InTurnDDP
from dp2ddp.templates.parts import (
    DataParallelOnRanks,
    data_parallel_on_ranks,
    gather_from_ranks,
    parallel_apply_on_ranks,
    replicate_on_ranks,
    scatter_tensor_to_ranks,
    scatter_to_ranks,
)
from dp2ddp.templates.process import alone, exchange, own_rank, world_size
from dp2ddp.templates.rank_zero_output import (
    object_on_rank_zero,
    on_rank_zero,
    open_on_rank_zero,
    save_on_rank_zero,
    write_on_rank_zero,
)
from dp2ddp.templates.temporary import (
    NamedTemporaryFileOnRankZero,
    TemporaryDirectoryOnRankZero,
    mkstemp_on_rank_zero,
)
from scenarios import Net, batches, mean_loss
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KINDS = (GraphDDP, ExactDDP)
Named = collections.namedtuple("Named", "one two")


class Talking(nn.Module):
    """Prints, counts, and fails where the rows say so."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(20, 5)
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        print(f"inside: {len(x)} rows")
        if bool((x[:, 0] > 1e6).any()):
            raise FloatingPointError("too large")
        out: torch.Tensor = self.line(x)
        return out


def prints_in_forward() -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as heard:
        GraphDDP(Talking())(torch.ones(world_size() + 1, 20))
    return exchange(heard.getvalue())[0]


def attributes_set_in_forward() -> Any:
    module = Talking()
    with contextlib.redirect_stdout(io.StringIO()):
        GraphDDP(module)(torch.ones(8, 20))
    return module.count


def an_exception_on_the_last_rank() -> Any:
    """Every rank raises it, and the next step is whole again."""
    said = []
    for kind in KINDS:
        torch.manual_seed(0)
        module = Talking()
        net = kind(module)
        x = torch.ones(2 * world_size(), 20)
        x[-1] = 1e9
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                net(x)
            except FloatingPointError as error:
                said += str(error).splitlines()[:1] + [str(error).splitlines()[-1]]
            net(x[:-1]).sum().backward()
        said.append(float(module.line.weight.grad.sum()))  # type: ignore[union-attr]
    return said


def names_and_faces() -> Any:
    """Keys, isinstance, .module, pickle, deepcopy, and a checkpoint that a plain module loads."""
    facts = []
    for kind in KINDS:
        module = Net()
        net = kind(module)
        mean_loss(net, *batches(8)[0]).backward()
        again, twin = pickle.loads(pickle.dumps(net)), copy.deepcopy(net)
        x = batches(8)[0][0]
        facts += [
            list(net.state_dict()) == [f"module.{key}" for key in module.state_dict()],
            isinstance(net, DistributedDataParallel) and net.module is module,
            torch.equal(net.eval()(x), again.eval()(x)) and torch.equal(net(x), twin.eval()(x)),
            [name for name, _ in net.named_parameters()][0],
            [type(one).__name__ for one in (again, twin, copy.copy(net))]
            == ["DataParallel", kind.__name__, kind.__name__],
        ]
        mean_loss(again.train(), *batches(8)[0]).backward()
    return facts


def without_the_factor() -> Any:
    """The gradient is 1/W of what it should be: this comparison would notice."""
    module, right = Net(nn.LayerNorm), Net(nn.LayerNorm)
    right.load_state_dict(module.state_dict())
    mean_loss(ExactDDP(right), *batches(8)[0]).backward()
    scale = ddp.ScaleGradient
    ddp.ScaleGradient = NoScale  # type: ignore[misc, assignment]
    try:
        mean_loss(ExactDDP(module), *batches(8)[0]).backward()
    finally:
        ddp.ScaleGradient = scale  # type: ignore[misc]
    ratio = [
        p.grad.norm() / q.grad.norm() for p, q in zip(parameters(module), parameters(right), strict=True)
    ]
    return [round(float(r), 5) for r in ratio if not r.isnan()]


class NoScale:
    @staticmethod
    def apply(tensor: torch.Tensor, factor: float) -> torch.Tensor:
        return tensor.clone()


def parameters(module: nn.Module) -> list[Any]:
    return list(module.parameters())


class Initialised(nn.Module):
    """ActNorm: the first rows it sees set its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(20))
        self.register_buffer("ready", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.bias.data.copy_(-x.mean(0))
            self.ready += 1  # type: ignore[operator]
        return x + self.bias


def initialised_by_the_data() -> Any:
    """Every rank has what replica 0 made of chunk 0."""
    facts = []
    for kind in KINDS:
        x = batches(2 * world_size())[0][0]
        module = Initialised()
        net = kind(module)
        net(x).sum().backward()
        facts.append(torch.equal(module.bias.detach(), -x[:2].mean(0)))
    return exchange(facts)


def outputs_that_cannot_be_gathered() -> Any:
    said = []
    for answer in (0.5, [1, 2], "text"):
        try:
            said.append(type(GraphDDP(Answering(answer))(torch.ones(4, 2))).__name__)
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return said


class Answering(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> Any:
        return self.answer


def rank_zero_alone() -> Any:
    """In a region of rank 0 nothing waits for the others, not even the wrapped model."""
    net = GraphDDP(Net()).eval()
    result = None
    if own_rank() == 0:
        with alone():
            result = (world_size(), on_rank_zero(lambda: len(net(torch.ones(3, 20)))))
    return exchange(result)[0]


def things_done_once() -> Any:
    """Results and exceptions of rank 0 on every rank, files complete when they are read."""
    folder = Path(on_rank_zero(tempfile.mkdtemp))
    facts: list[Any] = [len(list(folder.iterdir()))]
    on_rank_zero(os.makedirs, folder / "made")
    try:
        on_rank_zero(os.makedirs, folder / "made")
    except FileExistsError as error:
        facts.append(type(error).__name__)
    save_on_rank_zero({"rank": own_rank()}, folder / "made" / "model.pt")
    facts.append(torch.load(folder / "made" / "model.pt"))
    with open_on_rank_zero(folder / "log.csv", "w") as file:
        print("line of rank", own_rank(), file=file)
    facts.append((folder / "log.csv").read_text())
    facts.append(open_on_rank_zero(folder / "log.csv").read())
    for _ in range(2):
        with open_on_rank_zero(folder / "notes.txt", "a+") as file:
            file.write("one\n")
            os.fsync(file.fileno())
            file.seek(0)
            facts.append(len(file.readlines()))
    facts.append(sorted(path.name for path in folder.rglob("*")))
    return exchange(facts)


class Writer:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def add(self, line: str) -> Writer:
        self.lines.append(line)
        return self


def objects_of_rank_zero() -> Any:
    writer = object_on_rank_zero(Writer, "runs")
    writer.add("one").add("two")
    return exchange((writer.folder, len(list(writer.lines)) if own_rank() == 0 else 2))


def draws_on_the_host() -> Any:
    """Random numbers of the host, in forward: replicas draw one after another, and all ranks go on from there."""
    torch.manual_seed(4)
    random.seed(4)
    InTurnDDP(Drawing())(torch.ones(world_size(), 3))
    found = exchange([random.random(), torch.rand(2).tolist()])
    random.seed(4)
    expected = [random.random() for _ in range(4 * world_size() + 1)][-1]
    try:
        GraphDDP(Drawing())(torch.ones(world_size(), 3))
    except RuntimeError as error:
        return [found[0][0] == expected, found == [found[0]] * world_size(), "InTurnDDP" in str(error)]


class Drawing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(len(x) + int(x.sum())):
            random.random()
        return x * torch.rand(3)


def what_cannot_be_sent() -> Any:
    try:
        exchange(lambda: None if own_rank() == world_size() - 1 else 1)
    except TypeError as error:
        return "cannot send" in str(error)


def messages_of_any_length() -> Any:
    lengths = [0, 10, 2000, 5000 * (own_rank() + 1)]
    return [[len(text) for text in exchange("x" * length)] for length in lengths]


def numbers_of_rank(rows: int) -> Iterator[Any]:
    """Draws from every stream, and is another one on each rank: only rank 0's may be seen."""
    for i in range(rows):
        noise = torch.randn(3, 2) + random.random()
        yield {"x": noise, "again": noise, "t": noise.t(), "name": f"{i} of rank {own_rank()}", "none": None}
        torch.rand(own_rank())


def fed_items() -> Any:
    """Every rank sees rank 0's items, draws on as rank 0 does, and may leave early."""
    torch.manual_seed(5 + own_rank())
    random.seed(own_rank())
    seen: list[Any] = []
    for i, item in enumerate(feed(numbers_of_rank(6))):
        seen += [item["x"].tolist(), item["t"].stride(), item["name"], item["x"] is item["again"]]
        if i == 3:
            break
    seen += [torch.rand(2).tolist(), random.random()]
    seen.append([item["none"] for item in feed(numbers_of_rank(2))])
    return [len(set(map(str, exchange(seen)))), seen[1], seen[2], seen[3]]


def fed_errors() -> Any:
    """What is raised on rank 0 is raised on all of them, and then they go on together."""
    source = feed(queue.Queue(1)) if own_rank() == 0 else feed(None)
    said = []
    try:
        source.get_nowait()
    except queue.Empty as error:
        said.append(type(error).__name__)
    source.put({"rank": own_rank()})
    said += [source.full(), source.get()]
    try:
        next(feed(iter([])))
    except StopIteration:
        said.append("end")
    try:
        feed(Failing())[2]
    except ParserError as error:
        said.append(str(error))
    return said


class ParserError(Exception):
    """One that pickle cannot make again: it wants two arguments."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")


class Failing:
    def __getitem__(self, key: int) -> Any:
        raise ParserError(key, f"rank {own_rank()}")


def filled_by_a_thread() -> Any:
    """A thread of rank 0 fills the queue itself, while the ranks ask for items side by side."""
    items = feed(queue.Queue(2))
    filler = threading.Thread(target=lambda: [items.put(torch.full((2,), float(i))) for i in range(5)])
    if own_rank() == 0:
        filler.start()
    found = [items.get().tolist() for _ in range(5)]
    if own_rank() == 0:
        filler.join()
    return found


def methods_stay_on_rank_zero() -> Any:
    """An object with a state: calls move it on rank 0, and iterators of it are read there."""
    buffer = feed(collections.deque([torch.zeros(2), torch.ones(2)], maxlen=3))
    buffer.append(torch.full((2,), 2.0 + own_rank()))
    return [len(buffer), [x.tolist() for x in buffer], isinstance(iter(buffer), Fed), buffer[2].tolist()]


class Refilled:
    """Gives the same memory again and again, with other numbers in it, and half of a larger one."""

    def __init__(self) -> None:
        self.place, self.round = torch.zeros(101, 300, dtype=torch.float64), 0

    def __next__(self) -> Any:
        self.round += 1
        torch.arange(30300.0, out=self.place.view(-1)).add_(self.round)
        return {
            "x": self.place,
            "half": self.place.clone()[:, ::2],
            "n": self.round,
            "labels": torch.arange(101),
        }


def fed_large_batches() -> Any:
    """Large items are rows of each rank; what is filled anew, or written by one rank, changes no other's."""
    items = feed(Refilled() if own_rank() == 0 else None)
    first = next(items)
    doubled = first["x"] * 2
    second = next(items)
    plain = torch.arange(30300.0, dtype=torch.float64).view(101, 300)
    right = [
        torch.equal(doubled, (plain + 1) * 2),
        torch.equal(first["x"], plain + 1),
        torch.equal(second["half"], (plain + 2)[:, ::2]),
        abs(first["x"].sum().item() - (plain + 1).sum().item()) < 1e-6,
        second["labels"].tolist() == list(range(101)),
    ]
    first["x"][5:50, 3] = -1.0 - own_rank()
    changed = plain + 1
    changed[5:50, 3] = -1.0 - own_rank()
    right += [torch.equal(first["x"][:, 3], changed[:, 3]), torch.equal(second["x"], plain + 2)]
    kept = feed(collections.deque())
    kept.append(second["x"] * 3)  # back to rank 0, as a whole
    kept.append(second)
    right += [torch.equal(kept[0], (plain + 2) * 3), torch.equal(kept[1]["x"], plain + 2)]
    return [right, type(second["x"]).__name__, type(second["labels"]).__name__]


def parts_by_hand() -> Any:
    """The parts one by one, the function, a subclass with shares of its own: each as GraphDDP."""
    ids = list(range(world_size()))
    torch.manual_seed(3)
    x, y = batches(2 * world_size() + 1)[0]
    nets = [Net(nn.LayerNorm) for _ in range(4)]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    replicas = replicate_on_ranks(nets[1], ids)
    chunks = scatter_to_ranks((x,), ids)
    outputs = parallel_apply_on_ranks(replicas[: len(chunks)], chunks)
    found = [
        GraphDDP(nets[0])(x),
        gather_from_ranks(outputs, 0),
        data_parallel_on_ranks(nets[2], x, ids),
        Reversed(nets[3], ids)(x),
    ]
    for scores in found:
        nn.functional.cross_entropy(scores, y).backward()
    grads = [[p.grad for p in net.parameters()] for net in nets]
    pairs = [(a, b) for each in grads[1:] for a, b in zip(grads[0], each, strict=True)]
    close = all(a is not None and b is not None and torch.allclose(a, b, atol=1e-6) for a, b in pairs)
    try:
        replicas[(own_rank() + 1) % world_size()](x)
    except RuntimeError as error:
        return [all(torch.allclose(found[0], one) for one in found), close, "runs on rank" in str(error)]


class ManyKinds(nn.Module):
    """Tensors that lie in memory in many ways, with and without gradients; numbers; what was expanded or cast."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.register_buffer("steps", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.conv(x)
        lines = y.flatten(1)
        return {
            "images": y.contiguous(),
            "channels last": y.contiguous(memory_format=torch.channels_last),
            "input, channels last": x.contiguous(memory_format=torch.channels_last),
            "transposed": y.transpose(1, 3),
            "two dimensions": lines.reshape(len(x), 5, -1).transpose(1, 2),
            "columns": lines[:, ::2],
            "expanded": lines[:, :1].expand(-1, 7),
            "rows of a larger one": torch.cat([lines, lines])[: len(x)],
            "a number": lines.sum(),
            "a number, detached": lines.sum().detach(),
            "detached": lines.detach(),
            "indices": lines.argmax(1),
            "truths": lines > 0,
            "bfloat16": lines.bfloat16(),
            "complex": torch.complex(lines, lines).conj(),
            "a buffer": self.steps,
            "a parameter": self.conv.bias,
            "the input": x,
            "nothing": lines[:, :0],
            "volumes": y[:, :, None].contiguous(memory_format=torch.channels_last_3d),
        }


FACES = ("shape", "dtype", "requires_grad", "is_leaf", "grad_fn", "stride", "is_contiguous")


def meta(tensor: torch.Tensor) -> list[Any]:
    known = [getattr(tensor, name) for name in FACES]
    strides = [one for one, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return [*known[:4], known[4] is None, strides if tensor.numel() else [], tensor.is_contiguous()]


def outputs_lie_in_memory_as_gathered_ones() -> Any:
    """torch.cat of the replicas' outputs has the memory format that torch.cuda.comm.gather gives them."""
    wrong = []
    torch.manual_seed(1)
    x = torch.randn(2 * world_size() + 1, 3, 5, 5)
    for kind, graded in itertools.product((GraphDDP, ExactDDP, InTurnDDP), (True, False)):
        net = ManyKinds()
        with torch.set_grad_enabled(graded):
            parts = [net(chunk) for chunk in x.chunk(world_size())]
            found = kind(net)(x)
            for name, joined in found.items():
                whole = [part[name].view(1) if part[name].dim() == 0 else part[name] for part in parts]
                if name == "volumes":  # torch.cuda.comm.gather knows images only
                    whole = [one.contiguous() for one in whole]
                if meta(joined) != meta(torch.cat(whole)) or not torch.equal(joined, torch.cat(whole)):
                    wrong.append(
                        f"{kind.__qualname__} {name} {graded}: {meta(joined)}, {meta(torch.cat(whole))}"
                    )
                if joined.dtype != torch.bool:
                    joined.mul_(2)  # the script's own: it may write into it
    return wrong


def outputs_by_hand_are_the_replicas_own() -> Any:
    """Behind parallel_apply nothing is gathered: each output lies in memory as its replica left it."""
    ids = list(range(world_size()))
    torch.manual_seed(1)
    x = torch.randn(2 * world_size() + 1, 3, 5, 5)
    net = ManyKinds()
    wanted = [net(chunk) for chunk in x.chunk(world_size())]
    chunks = scatter_to_ranks((x,), ids)
    found = parallel_apply_on_ranks(replicate_on_ranks(net, ids)[: len(chunks)], chunks)
    loose = {
        "columns",
        "expanded",
        "rows of a larger one",
    }  # with gaps: they cannot be as they were, and not sent
    wrong = []
    for one, other in zip(found, wanted, strict=True):
        for name, tensor in one.items():
            same = meta(tensor)[:3] == meta(other[name])[:3] and torch.equal(tensor, other[name])
            if not same or (name not in loose and meta(tensor)[5:] != meta(other[name])[5:]):
                wrong.append(f"{name}: {meta(tensor)}, {meta(other[name])}")
    wholes = gather_from_ranks(found, 0)
    wrong += [
        name
        for name in wholes
        if wholes[name].shape[:1] != torch.cat([torch.atleast_1d(p[name]) for p in wanted]).shape[:1]
    ]
    return wrong


class Turned(nn.Module):
    """Rows along the second dimension, and a list that is filled in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(x.detach().t())
        return x * 2


def kept_along_another_dimension() -> Any:
    net = Turned()
    x = torch.arange(6.0 * world_size()).view(2, 3 * world_size())
    out = InTurnDDP(net, dim=1)(x)
    return [torch.equal(out, x * 2), torch.equal(torch.cat(net.kept), x.t())]


class Reversed(DataParallelOnRanks):
    """Gives the first rank one row, and its replicas' outputs reversed twice."""

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        rows = len(inputs[0])
        sizes = [1, *(len(part) for part in torch.arange(rows - 1).chunk(len(device_ids) - 1))]
        return [(part,) for part in scatter_tensor_to_ranks(device_ids[: len(sizes)], sizes, 0, inputs[0])], [
            {} for _ in sizes
        ]

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return super().gather(list(reversed(list(reversed(outputs)))), output_device)


def what_a_forward_keeps() -> Any:
    """Lists, dicts, counts, objects, a closure of a hook: as if the replicas had filled them one after another."""
    net = Keeping()
    seen: dict[str, Any] = {}
    meter = Meter()
    net.layer.register_forward_hook(meter)
    net.layer.register_forward_hook(
        lambda module, given, output: seen.update(out=output.detach(), rows=len(output))
    )
    wrapped = InTurnDDP(net)
    rows = world_size() + 1
    x = torch.arange(2.0 * rows).view(rows, 2)
    for _ in range(2):
        wrapped(x)
    chunks = [len(chunk) for chunk in x.chunk(world_size())]
    own = net.drawn
    torch.stack(net.sums[-len(chunks) :]).sum().backward()
    gradient = net.layer.weight.grad
    assert gradient is not None
    return [
        net.stats == {"rows": 2 * rows, "last": chunks[-1]},
        net.meter.counts == meter.counts == chunks * 2,
        len(net.sums) == 2 * len(chunks),
        seen["rows"] == chunks[-1] and torch.equal(seen["out"], net.layer(x.chunk(world_size())[-1])),
        torch.equal(gradient, x.sum(0).expand(2, 2)),
        net.total.tolist() == [2.0 * rows],
        own == [[generator.random(), generator.random()] for generator in [random.Random(3)] for _ in own],
    ]


class Meter:
    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, module: nn.Module, given: Any, output: torch.Tensor) -> None:
        self.update(len(output))

    def update(self, count: int) -> None:
        self.counts = [*self.counts, count]


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.sums: list[torch.Tensor] = []
        self.stats = {"rows": 0, "last": 0}
        self.meter = Meter()
        self.total = torch.zeros(1)
        self.kept = [self.total]
        self.generator = random.Random(3)
        self.drawn: list[list[float]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        self.sums.append(out.sum())
        self.stats["rows"] += len(x)
        self.stats["last"] = len(x)
        self.meter.update(len(x))
        self.kept[0] += len(x)
        self.drawn.append([self.generator.random(), self.generator.random()])
        return out


def temporary_files() -> Any:
    """One folder and one file for all ranks, there until all are done with it; buffers stay each rank's own."""
    facts: list[Any] = []
    with TemporaryDirectoryOnRankZero(prefix="shared") as folder:
        save_on_rank_zero({"rank": own_rank()}, os.path.join(folder, "best.pt"))
        facts += [folder, torch.load(os.path.join(folder, "best.pt")), sorted(os.listdir(folder))]
    facts.append(os.path.exists(folder))
    with NamedTemporaryFileOnRankZero("w+", suffix=".txt") as file:
        file.write("line")
        file.flush()
        file.seek(0)
        facts += [file.name, file.read(), Path(file.name).read_text()]
    facts.append(os.path.exists(file.name))
    kept = NamedTemporaryFileOnRankZero(delete=False)
    kept.close()
    handle, path = mkstemp_on_rank_zero()
    os.write(handle, f"rank {own_rank()}".encode())
    os.close(handle)
    exchange(None)
    facts += [os.path.exists(kept.name), path, Path(path).read_text()]
    for made in (kept.name, path):
        on_rank_zero(os.remove, made)
    buffer = io.BytesIO()
    write_on_rank_zero(torch.save, own_rank(), buffer)
    facts.append(len(buffer.getvalue()) > 0)
    return exchange([*facts[1:], len(set(exchange((folder, file.name, kept.name, path))))])


CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check
    for check in (
        prints_in_forward,
        attributes_set_in_forward,
        an_exception_on_the_last_rank,
        names_and_faces,
        without_the_factor,
        initialised_by_the_data,
        outputs_that_cannot_be_gathered,
        rank_zero_alone,
        things_done_once,
        temporary_files,
        objects_of_rank_zero,
        draws_on_the_host,
        what_cannot_be_sent,
        messages_of_any_length,
        fed_items,
        fed_errors,
        filled_by_a_thread,
        methods_stay_on_rank_zero,
        fed_large_batches,
        parts_by_hand,
        outputs_lie_in_memory_as_gathered_ones,
        outputs_by_hand_are_the_replicas_own,
        kept_along_another_dimension,
        what_a_forward_keeps,
    )
}
