"""nn.DataParallel on virtual devices is torch's own: the numbers of a hand-made sum over chunks, and every quirk."""

from __future__ import annotations

import copy
import hashlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import ASLEEP, state_of

from .conftest import Install

# ---- the numbers, against an independent formula


def gradients_by_chunks(
    model: nn.Module, batch: torch.Tensor, targets: torch.Tensor, world: int, seed: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """DataParallel on paper: g = g_0 + g_1 + ..., where g_r = (dL/d out_r) (d out_r / d p), out_r = model(chunk r).

    A copy of the model a chunk, each from the same seed, because torch.manual_seed gives all devices equal streams
    (docs/semantics.md#device-streams). Returns also the buffers, which are those of chunk 0. No DataParallel, no
    virtual device.
    """
    chunks = torch.chunk(batch, world)
    copies = [copy.deepcopy(model) for _ in chunks]
    outputs = []
    for each, chunk in zip(copies, chunks, strict=True):
        torch.manual_seed(seed)
        outputs.append(each(chunk))
    whole = torch.cat([output.detach() for output in outputs]).requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(whole, targets), whole)
    total: list[torch.Tensor] = []
    for each, output, part in zip(copies, outputs, slope.split([len(o) for o in outputs]), strict=True):
        gradients = torch.autograd.grad(output, list(each.parameters()), part)
        total = [a + b for a, b in zip(total, gradients, strict=True)] if total else list(gradients)
    return total, list(copies[0].buffers())


def make_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4), nn.Linear(4 * 36, 5)
    )


def data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(rows, 3, 8, 8), torch.randint(0, 5, (rows,))


@pytest.mark.parametrize(
    ("world", "rows"),
    [
        pytest.param(1, 6, id="one device"),
        pytest.param(2, 8, id="even"),
        pytest.param(2, 9, id="uneven"),
        pytest.param(3, 10, id="4 + 4 + 2"),
        pytest.param(4, 6, id="4 devices, 3 with rows"),
        pytest.param(8, 16, id="8 devices"),
    ],
)
def test_gradients_and_buffers_are_the_sum_over_chunks_bit_for_bit(
    virtual: Install, world: int, rows: int
) -> None:
    batch, targets = data(rows)
    gradients, buffers = gradients_by_chunks(make_model(), batch, targets, world, seed=7)

    virtual(world)
    model = nn.DataParallel(make_model().cuda())
    torch.manual_seed(7)
    F.cross_entropy(model(batch.cuda()), targets.cuda()).backward()

    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert torch.equal(parameter.grad.cpu(), gradient)
    for ours, theirs in zip(model.buffers(), buffers, strict=True):
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.filterwarnings("ignore:Using -1:FutureWarning")  # torch's own, of its Scatter.backward
def test_input_gradients_reach_the_whole_batch(virtual: Install) -> None:
    virtual(3)
    batch = torch.ones(5, 2, requires_grad=True)
    (
        nn.DataParallel(nn.Linear(2, 1, bias=False).cuda())(batch) * torch.arange(5.0).cuda()[:, None]
    ).sum().backward()
    ratios = batch.grad[1:, 0] / batch.grad[1, 0]
    assert torch.allclose(ratios, torch.arange(1.0, 5.0))
    assert batch.grad.device.type == "cpu"


# ---- what is split, and what torch makes of it (docs/semantics.md#chunks and below)


class Forward(nn.Module):
    """A linear layer whose forward is given by the test."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("rows_seen", torch.zeros(1))
        self.calls = 0
        self._forward = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)


def wrap(forward: Callable[..., Any], **options: Any) -> Any:
    return nn.DataParallel(Forward(forward).cuda(), **options)


def linear(module: Any, x: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
    output: torch.Tensor = module.linear(x)
    return output


@pytest.mark.parametrize(
    ("world", "rows", "chunks"),
    [
        pytest.param(4, 5, [2, 2, 1], id="5 rows on 4 devices"),
        pytest.param(4, 6, [2, 2, 2], id="6 rows on 4 devices"),
        pytest.param(8, 9, [2, 2, 2, 2, 1], id="9 rows on 8 devices"),
        pytest.param(2, 1, [1], id="one row"),
        pytest.param(1, 5, [5], id="one device"),
    ],
)
def test_replicas_get_the_rows_that_torch_chunk_gives(
    virtual: Install, world: int, rows: int, chunks: list[int]
) -> None:
    seen: list[tuple[int, int]] = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        seen.append((x.get_device(), len(x)))
        return linear(self, x)

    virtual(world)
    wrap(forward)(torch.ones(rows, 4).cuda())
    assert seen == list(enumerate(chunks))


def test_scalars_become_a_vector_with_torchs_warning(virtual: Install) -> None:
    virtual(3)
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        output = wrap(lambda self, x: self.linear(x).mean())(torch.ones(5, 4))
    assert output.shape == (3,)


def test_replica_0_keeps_buffers_and_attributes_are_lost(virtual: Install) -> None:
    virtual(3)

    def count(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.rows_seen += len(x)
        self.calls += 1
        return linear(self, x)

    model = wrap(count)
    model(torch.ones(10, 4))
    assert (model.module.rows_seen.item(), model.module.calls) == (4, 0)


def test_unused_parameters_get_zeros(virtual: Install) -> None:
    virtual(2)
    model = wrap(lambda self, x: x * self.linear.weight.sum())
    model(torch.ones(4, 4)).sum().backward()
    assert model.module.linear.bias.grad.tolist() == [0, 0]


def test_autocast_dtype_does_not_reach_the_replicas(virtual: Install) -> None:
    """docs/semantics.md#autocast-dtype: the switch is handed to the threads, the dtype is not."""
    virtual(2)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert wrap(linear)(torch.ones(4, 4).cuda()).dtype == torch.float16
        assert Forward(linear).cuda()(torch.ones(4, 4).cuda()).dtype == torch.bfloat16


ERRORS = {
    "parameters on the CPU": (
        lambda: nn.DataParallel(nn.Linear(4, 2))(torch.ones(4, 4).cuda()),
        RuntimeError,
        r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cpu",
    ),
    "parameters on device 1": (
        lambda: nn.DataParallel(nn.Linear(4, 2).cuda(1), device_ids=[0, 1])(torch.ones(4, 4).cuda()),
        RuntimeError,
        r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cuda:1",
    ),
    "next(parameters) in a replica": (
        lambda: wrap(lambda self, x: x + next(self.parameters()).sum())(torch.ones(4, 4)),
        StopIteration,
        "Caught StopIteration in replica 0 on device 0",
    ),
    "keyword for more replicas than chunks": (
        lambda: wrap(lambda self, x, mode: linear(self, x))(torch.ones(1, 4), mode="loss"),
        TypeError,
        "missing 1 required positional argument: 'x'",
    ),
    "0-dim argument": (
        lambda: wrap(linear)(torch.ones(())),
        RuntimeError,
        "chunk expects at least a 1-dimensional tensor",
    ),
    "outputs that do not fit": (
        lambda: wrap(lambda self, x: linear(self, x)[:, : len(x)])(torch.ones(3, 4)),
        RuntimeError,
        r"Sizes of tensors must match except in dimension 0",
    ),
    "float": (lambda: wrap(lambda self, x: 1.0)(torch.ones(4, 4)), TypeError, "not iterable"),
}


@pytest.mark.parametrize(("call", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_are_torchs_own(virtual: Install, call: Any, error: type[Exception], message: str) -> None:
    virtual(2)
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "batch", "shape", "device"),
    [
        pytest.param({"dim": 1}, torch.ones(3, 6, 4), (3, 6, 2), 0, id="dim=1"),
        pytest.param({"output_device": 2}, torch.ones(6, 4), (6, 2), 2, id="output_device"),
        pytest.param(
            {"device_ids": [torch.device("cuda:0"), 2]}, torch.ones(6, 4), (6, 2), 0, id="device_ids"
        ),
    ],
)
def test_options(
    virtual: Install, options: Any, batch: torch.Tensor, shape: tuple[int, ...], device: int
) -> None:
    virtual(3)
    output = wrap(linear, **options)(batch.cuda())
    assert (output.shape, output.device.index) == (shape, device)


def test_arguments_of_different_length_are_cut_silently(virtual: Install) -> None:
    virtual(4)
    assert wrap(linear)(torch.ones(8, 4), torch.ones(1)).shape == (2, 2)


def test_structures_and_others(virtual: Install) -> None:
    virtual(2)
    seen: list[Any] = []

    def forward(self: Any, pair: Any, name: str, *, more: Any) -> Any:
        seen.append((pair[0].shape[0], pair[1]["y"].device.index, name, more))
        return {"a": linear(self, pair[0]), "b": None}

    output = wrap(forward)((torch.ones(3, 4), {"y": torch.ones(3)}), "name", more=[1, 2])
    assert output["a"].shape == (3, 2)
    assert output["b"] is None
    assert seen == [(2, 0, "name", [1, 2]), (1, 1, "name", [1, 2])]


def test_functional_and_hand_made_pieces(virtual: Install) -> None:
    virtual(3)
    module, batch = Forward(linear).cuda(), torch.ones(7, 4).cuda()
    whole = nn.parallel.data_parallel(module, batch, [0, 1, 2])
    chunks = nn.parallel.scatter(batch, [0, 1, 2])
    replicas = nn.parallel.replicate(module, [0, 1, 2])
    outputs = nn.parallel.parallel_apply(replicas, chunks)
    by_hand = nn.parallel.gather(outputs, 1)
    assert [(len(chunk), chunk.device.index) for chunk in chunks] == [(3, 0), (3, 1), (1, 2)]
    assert torch.equal(by_hand.cpu(), whole.cpu())
    assert by_hand.device.index == 1


def test_chunk_0_is_a_view_and_the_others_are_copies(virtual: Install) -> None:
    virtual(2)
    batch = torch.zeros(4, device="cuda")
    for chunk in nn.parallel.scatter(batch, [0, 1]):
        chunk += 1
    assert batch.tolist() == [1, 1, 0, 0]


# ---- threads


def test_replicas_run_in_device_order_each_on_its_device(virtual: Install) -> None:
    virtual(4)
    order: list[int] = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 if x.device.index == 0 else 0)  # without turns, device 0 would be the last
        order.append(torch.cuda.current_device())
        assert x.device == torch.zeros(1, device="cuda").device == torch.zeros(1).cuda().device
        return linear(self, x)

    wrap(forward)(torch.ones(8, 4))
    assert order == [0, 1, 2, 3]


def test_replicas_that_wait_for_each_other_do_not_hang(virtual: Install) -> None:
    virtual(3)
    meeting = threading.Barrier(3)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        meeting.wait(timeout=20)
        return linear(self, x)

    assert wrap(forward)(torch.ones(6, 4)).shape == (6, 2)


class Bell:
    """Each way in which a thread may wait until another one rings."""

    def __init__(self, kind: str) -> None:
        self.kind, self.rung = kind, False
        self.lock = threading.Lock()
        self.lock.acquire()
        self.simple: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.event = torch.multiprocessing.Event()

    def ring(self) -> None:
        self.rung = True
        self.lock.release()
        self.simple.put(None)
        self.event.set()

    def wait(self) -> None:
        if self.kind == "lock":
            self.lock.acquire()
        elif self.kind == "simple queue":
            self.simple.get()
        elif self.kind == "event of processes":
            self.event.wait()
        while self.kind == "sleeping loop" and not self.rung:
            time.sleep(0.001)


@pytest.mark.parametrize("kind", ["lock", "simple queue", "event of processes", "sleeping loop"])
def test_replicas_wait_in_any_way_for_one_that_comes_later(virtual: Install, kind: str) -> None:
    virtual(2)
    bell = Bell(kind)

    class Waiting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bell.wait() if x.get_device() == 0 else bell.ring()
            return super().forward(x)

    assert nn.DataParallel(Waiting(2, 2).cuda())(torch.ones(2, 2)).shape == (2, 2)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux says what a thread does")
def test_one_that_lacks_a_core_is_not_taken_to_wait() -> None:
    ended, lock = threading.Event(), threading.Lock()

    def compute() -> None:
        while not ended.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)  # lets other threads go on

    busy, waiting = threading.Thread(target=compute), threading.Thread(target=lock.acquire)
    with lock:
        busy.start()
        waiting.start()
        try:
            assert _within_seconds(lambda: state_of(busy) == b"R")
            assert _within_seconds(lambda: state_of(waiting) == ASLEEP)
        finally:
            ended.set()
    busy.join()
    waiting.join()


def _within_seconds(happens: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not happens() and time.monotonic() < end:
        time.sleep(0.001)
    return happens()


# ---- autograd beyond one backward


@pytest.fixture
def penalised(virtual: Install) -> tuple[Any, torch.Tensor]:
    virtual(3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    return model, torch.randn(7, 4, dtype=torch.float64)


def test_gradient_penalty_equals_the_unsplit_one(penalised: tuple[Any, torch.Tensor]) -> None:
    """Double backward runs Broadcast's and Gather's backward of backward."""
    model, batch = penalised
    results = []
    for module, device in ((model, "cpu"), (nn.DataParallel(model.cuda()), "cuda")):
        x = batch.to(device).requires_grad_()
        (slope,) = torch.autograd.grad(module.to(device)(x).sum(), x, create_graph=True)
        module.zero_grad()
        ((slope.norm(2, dim=1) - 1) ** 2).mean().backward()
        results.append(module.get_parameter("0.weight" if device == "cpu" else "module.0.weight").grad.cpu())
        model.to("cuda")
    assert torch.allclose(results[0], results[1], rtol=1e-12, atol=0)


def test_custom_functions_see_devices_in_backward(virtual: Install) -> None:
    virtual(2)
    places: list[tuple[int, int]] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            places.append((gradient.device.index, torch.cuda.current_device()))
            return gradient * torch.full_like(gradient, 2.0)

    model = wrap(lambda self, x: Double.apply(linear(self, x)))
    model(torch.ones(4, 4)).sum().backward()
    assert sorted(places) == [(0, 0), (1, 1)]
    assert model.module.linear.bias.grad.tolist() == [8, 8]


def test_saved_outputs_know_their_device_in_backward(virtual: Install) -> None:
    """They come back from C++ as new tensors."""
    virtual(2)

    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            output = x.exp()
            ctx.save_for_backward(output)
            return output

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (output,) = ctx.saved_tensors
            return gradient * output + torch.zeros(output.shape, device=output.device)

    model = wrap(lambda self, x: Exponential.apply(self.linear(x) * 0))
    model(torch.ones(4, 4)).sum().backward()
    assert model.module.linear.bias.grad.tolist() == [0, 0]
