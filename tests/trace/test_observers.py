"""What happens between the steps, as the script itself knows it: under DataParallel, and in a hand-made port."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.trace.records import Step, Trace, read_trace
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun

SCRIPT = """
import json, os, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.clip_grad import clip_grad_value_
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ddp = "RANK" in os.environ
rank = int(os.environ.get("RANK", "0"))
if ddp:
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
torch.manual_seed(7)
told = {"indices": [], "gradients": [], "clipped": [], "norms": []}

class Noisy(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        return torch.full((3,), float(i)) + 0.0 * torch.rand(3), i

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(4.0).split(1))

data = Noisy()
sampler = DistributedSampler(data, shuffle=True, seed=3) if ddp else None
loader = DataLoader(data, 6, shuffle=sampler is None, sampler=sampler, num_workers=2)
plain = DataLoader(TensorDataset(torch.arange(8.0)), 4)

net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).cuda()
wrapped = nn.parallel.DistributedDataParallel(net, [rank]) if ddp else nn.DataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inner = [lr_scheduler.StepLR(optimizer, 2), lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)]
scheduler = lr_scheduler.SequentialLR(optimizer, inner, [1])
scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
for step, (x, index) in enumerate(loader):
    told["indices"].append(index.tolist())
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        out = wrapped(x.cuda())
    loss = out.square().mean()
    if step == 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    before = torch.cat([p.grad.flatten() for p in net.parameters()]).tolist()
    norm = clip_grad_norm_((p for p in net.parameters()), 1e-3)
    if step != 1:
        told["gradients"].append(before)
        told["clipped"].append(torch.cat([p.grad.flatten() for p in net.parameters()]).tolist())
    told["norms"].append(norm.item())
    clip_grad_value_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    scheduler.step()
    if ddp:
        dist.all_reduce(torch.ones(1).cuda())
        found = [None, None]
        dist.all_gather_object(found, rank)
net.eval()
with torch.no_grad():
    wrapped(torch.ones(2, 3).cuda())
for batch in plain:
    pass
for batch in DataLoader(Stream(), 2):
    pass
told["state"] = torch.get_rng_state().sum().item()
json.dump(told, open(f"told{rank}.json", "w"))
"""


@dataclass(frozen=True)
class Seen:
    """One rank: what its script says, and its record."""

    told: dict[str, Any]
    trace: Trace

    @property
    def steps(self) -> list[Step]:
        return list(self.trace.steps())


@pytest.fixture(scope="module")
def seen(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Seen]]:
    """dp: one process; ddp: two ranks; alone: one process without a record."""
    rooms = {name: tmp_path_factory.mktemp(name) for name in ("dp", "ddp", "alone")}
    runs = watch([server.start(stage(room, name)) for name, room in rooms.items()], 60)
    assert [run.failure for run in runs] == [None] * 3
    told = {name: [json.loads((room / "told0.json").read_text())] for name, room in rooms.items()}
    told["ddp"].append(json.loads((rooms["ddp"] / "told1.json").read_text()))
    return {
        name: [Seen(one, read_trace(rooms[name] / "trace", rank) if name != "alone" else Trace(rooms[name], 0))
               for rank, one in enumerate(all_told)]
        for name, all_told in told.items()
    }  # fmt: skip


def stage(room: Path, name: str) -> Stage:
    script = room / "train.py"
    script.write_text(SCRIPT)
    mode: Mode = "ddp" if name == "ddp" else "dp"
    trace = None if name == "alone" else str(room / "trace")
    return stage_of(script, mode, trace=trace, dtype="float64", sample_streams=True, seed=1)


def test_nothing_failed_and_the_script_noticed_nothing(seen: dict[str, list[Seen]]) -> None:
    for one in (*seen["dp"], *seen["ddp"]):
        assert one.trace.end.broken == ""
    assert seen["dp"][0].told == seen["alone"][0].told


def test_batches_by_the_samplers_indices(seen: dict[str, list[Seen]]) -> None:
    for one in (*seen["dp"], *seen["ddp"]):
        assert one.trace.end is not None
        draws = [draw for events in (*one.steps, one.trace.end) for draw in events.draws]
        assert [list(draw.indices or ()) for draw in draws if draw.loader == 0] == one.told["indices"]
        assert [draw.indices for draw in draws if draw.loader == 1] == [(0, 1, 2, 3), (4, 5, 6, 7)]
        assert [draw.indices for draw in draws if draw.loader == 2] == [None, None]


def test_random_streams_where_a_batch_is_loaded(seen: dict[str, list[Seen]]) -> None:
    """Both ranks set the same seed, so their workers draw the same numbers for other samples."""
    first = [one.steps[0].draws[0] for one in (*seen["dp"], *seen["ddp"])]
    assert all(draw.streams for draw in first)
    assert first[1].streams == first[2].streams
    assert first[1].indices != first[2].indices
    ends = [one.trace.end for one in seen["dp"]]
    assert not any(draw.streams for end in ends if end for draw in end.draws)


def test_gradients_before_and_after_clipping(seen: dict[str, list[Seen]]) -> None:
    for one in (seen["dp"][0], seen["ddp"][0]):
        for step, before, after in zip(one.steps, one.told["gradients"], one.told["clipped"], strict=True):
            assert step.unclipped.values.tolist() == before
            assert step.gradients.values.tolist() == after
            assert before != after
            assert sorted(set(step.limits)) == [1e-3, 1.0]  # the norm, then the value


def test_norms_skipped_steps_and_schedulers(seen: dict[str, list[Seen]]) -> None:
    for one in (*seen["dp"], *seen["ddp"]):
        events = [*one.steps, one.trace.end]
        norms = [norm for each in events if each for norm in each.clips]
        assert str(norms) == str(one.told["norms"])  # one is nan
        assert sum(each.skipped for each in events if each) == 1
        assert sum(each.scheduled for each in events if each) == 2 * len(one.told["norms"])


def test_the_precision_that_autocast_was_asked_for(seen: dict[str, list[Seen]]) -> None:
    assert all(step.precision == ("float16",) for one in (*seen["dp"], *seen["ddp"]) for step in one.steps)


def test_collectives_by_name(seen: dict[str, list[Seen]]) -> None:
    one = seen["ddp"][1]
    events = [*one.steps, one.trace.end]
    calls = sum((Counter(dict(each.collectives)) for each in events if each), Counter())
    assert calls == {"all_gather_object": 2, "all_reduce": 2}
    assert not any(step.collectives for step in seen["dp"][0].steps)


def test_rows_are_found_again_on_the_rank_that_got_them(seen: dict[str, list[Seen]]) -> None:
    """Noisy's rows hold nothing but their index, so the digest of a row stands for the index."""
    reference = seen["dp"][0]
    digests: dict[int, int] = {}
    for one in (reference, *seen["ddp"]):
        assert one.trace.end is not None
        forwards = [forward for events in (*one.steps, one.trace.end) for forward in events.forwards]
        batches = one.told["indices"]
        assert [sum(forward.rows) for forward in forwards] == [*(len(batch) for batch in batches), 2]
        for forward, batch in zip(forwards, batches, strict=False):
            assert forward.training
            for digest, index in zip(forward.digests, batch, strict=True):
                assert digests.setdefault(index, digest) == digest
        assert not forwards[-1].training
        assert len(set(forwards[-1].digests)) == 1
    assert len(set(digests.values())) == 16
    assert reference.steps[0].rows[0] == (3, 3)


def test_buffers_of_the_start_are_those_before_the_first_forward(seen: dict[str, list[Seen]]) -> None:
    """In a right port too the ranks' running statistics differ behind it."""
    for one in (seen["dp"][0], seen["ddp"][0]):
        initial = one.trace.initial()
        found = dict(zip(initial.layout.names, initial.layout.slices, strict=True))
        assert initial.values[found["1.running_mean"]].tolist() == [0.0] * 4
        assert initial.values[found["1.num_batches_tracked"]].tolist() == [0.0]
    starts = [one.trace.initial() for one in (*seen["dp"], *seen["ddp"])]
    assert len({start.hashes.tobytes() for start in starts}) == 1
