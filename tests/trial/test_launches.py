"""Ports that are told their rank by an argument or by another launcher's variables: found out, said, and tried."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial import launches
from dp2ddp.trial.launches import find_launch, try_with_launch
from dp2ddp.trial.subject import Subject, Version, subject_of
from tests.cli.scripts import script
from tests.heard import Heard

HEAD = """
import argparse
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
"""
TRAIN = (
    HEAD
    + """
args = parser.parse_args()
torch.manual_seed(3)
model = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for step in range(3):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    model(x.cuda()).pow(2).mean().backward()
    optimizer.step()
"""
)
LOOP = """
    torch.manual_seed(3)
    model = nn.Linear(4, 2).cuda()
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for step in range(3):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        x = x.chunk(world)[rank] if dist.is_initialized() else x
        optimizer.zero_grad()
        model(x.cuda()).pow(2).mean().backward()
        optimizer.step()
"""
JOIN = """
args = parser.parse_args()
def main(rank, world):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
"""
SLURM = """
args = parser.parse_args()
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29511")
def main():
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", rank=rank, world_size=world)
"""
IMAGENET = """
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-url", default="tcp://224.66.41.62:23456")
parser.add_argument("--multiprocessing-distributed", action="store_true")
def main(rank, args):
    world = args.world_size * torch.cuda.device_count()
    if args.multiprocessing_distributed:
        rank = args.rank * torch.cuda.device_count() + rank
        dist.init_process_group("nccl", init_method=args.dist_url, world_size=world, rank=rank)
        torch.cuda.set_device(rank)
"""
STARTS = """
if __name__ == "__main__":
    args = parser.parse_args()
    if args.multiprocessing_distributed:
        mp.spawn(main, nprocs=torch.cuda.device_count(), args=(args,))
    else:
        main(0, args)
"""
CALL = "\nmain(args.local_rank, torch.cuda.device_count())\n"
PORTS = {
    "required": (
        HEAD + 'parser.add_argument("--local_rank", type=int, required=True)' + JOIN + LOOP + CALL,
        '--converted-arguments "--local_rank {local_rank}"',
    ),
    "alone without it": (
        HEAD
        + 'parser.add_argument("--local-rank", type=int, default=-1)'
        + JOIN.replace(
            "    torch.cuda", "    if rank < 0:\n        world = 1\n    else:\n        torch.cuda"
        ).replace("    dist.", "        dist.")
        + LOOP
        + CALL,
        '--converted-arguments "--local-rank {local_rank}"',
    ),
    "imagenet": (
        HEAD + IMAGENET + LOOP + STARTS,
        "--multiprocessing-distributed --world-size 1 --rank 0 --dist-url tcp://127.0.0.1:23456",
    ),
    "slurm": (HEAD + SLURM + LOOP + "\nmain()\n", "the variables of SLURM"),
}


def tried(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch, port: str, heard: Heard) -> Verdict:
    monkeypatch.chdir(folder)
    script(folder, TRAIN)
    script(folder, port, "port.py")
    subject = subject_of(VerifyOptions(script=Path("train.py"), converted=Path("port.py"), timeout=20))
    scratch = folder.parent / f"{folder.name}-scratch"
    scratch.mkdir()
    subject = replace(subject, torchrun=False, float32=False)
    return try_with_launch(subject, 2, server, scratch, heard)[1]


@pytest.mark.torchrun
@pytest.mark.parametrize("port", PORTS)
def test_a_port_is_started_as_it_asks(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    text, words = PORTS[port]
    heard = Heard()
    verdict = tried(tmp_path, server, monkeypatch, text, heard)
    assert verdict.same, verdict.float64.first
    assert verdict.met
    assert words in verdict.remarks[0]
    assert "torchrun sets RANK, LOCAL_RANK, WORLD_SIZE" in verdict.remarks[0]
    assert any("once more with" in line for line in heard.lines)


@pytest.mark.torchrun
def test_what_fails_in_both_ways_is_told_with_what_it_asks_for(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PORTS["slurm"][0].replace("    for step in", "    raise OSError('no disk')\n    for step in")
    with pytest.raises(RunError, match="it asks for SLURM_PROCID.*; torchrun sets RANK") as failed:
        tried(tmp_path, server, monkeypatch, text, Heard())
    assert "with the variables of SLURM: port.py: failed" in str(failed.value)
    assert str(failed.value).endswith("OSError: no disk")


@pytest.mark.torchrun
def test_a_port_that_ends_itself_in_both_ways_is_told_so_in_a_note(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PORTS["required"][0].replace("    for step in", "    raise OSError('no disk')\n    for step in")
    verdict = tried(tmp_path, server, monkeypatch, text, Heard())
    assert not verdict.same
    assert any("it asks for --local_rank" in each and "no disk" in each for each in verdict.remarks)


@pytest.mark.parametrize(
    ("text", "given", "starts", "arguments"),
    [
        ('p.add_argument("--local_rank")', (), False, ("--local_rank", "{local_rank}")),
        ('p.add_argument("--local_rank")', ("--local_rank=0",), False, None),
        ('p.add_argument("--local_rank")', ("--local-rank", "0"), False, None),
        ('p.add_argument("-r", "--rank")\np.add_argument("--world_size")', (), False,
         ("--rank", "{rank}", "--world_size", "{world}")),
        ('p.add_argument("--local_world_size", type=int)', (), False, ("--local_world_size", "{world}")),
        ('p.add_argument("--distributed", action="store_true")', (), False, ("--distributed",)),
        ('p.add_argument("--distributed", type=int)', (), False, None),
        ('p.add_argument("--gpus", type=int)', (), True, ("--gpus", "{world}")),
        ('p.add_argument("--gpus", type=int)', (), False, None),
        ('p.add_argument("--world-size", type=int)', (), True, None),
        ("os.environ['LOCAL_RANK']", (), False, None),
    ],
)  # fmt: skip
def test_what_a_port_asks_for(
    text: str, given: tuple[str, ...], starts: bool, arguments: tuple[str, ...] | None
) -> None:
    found = find_launch([ast.parse(text)], given, starts)
    assert (found.arguments if found else None) == arguments


def test_open_mpis_variables() -> None:
    found = find_launch([ast.parse("rank = int(os.environ['OMPI_COMM_WORLD_RANK'])")], (), False)
    assert dict(found.variables)["OMPI_COMM_WORLD_SIZE"] == "{world}"


@pytest.mark.parametrize(("kind", "starts"), [("crash", 2), ("hang", 2), ("memory", 1)])
def test_another_start_is_tried_where_it_may_help(
    kind: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = tmp_path / "port.py"
    port.write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n"
    )
    subject = Subject(
        VerifyOptions("train.py", converted=port),
        tmp_path / "train.py",
        "train.py",
        Version(b"", "port.py"),
        tmp_path,
        port=port,
    )
    tries: list[str] = []

    def fails(subject: Subject, *_: object) -> Verdict:
        tries.append(subject.version.launch)
        raise RunError("no", {"mode": "ddp", "kind": kind})

    monkeypatch.setattr(launches, "run_trial", fails)
    with pytest.raises(RunError):
        try_with_launch(subject, 2, cast("Server", None), tmp_path, Heard())
    assert len(tries) == starts
