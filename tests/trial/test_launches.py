"""Ports that are told their rank by an argument or by another launcher's variables: found out, and said."""

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
from dp2ddp.trial.launches import advice, run_with_advice
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
    "alone without it": (
        HEAD
        + 'parser.add_argument("--local-rank", type=int, default=-1)'
        + JOIN.replace(
            "    torch.cuda", "    if rank < 0:\n        world = 1\n    else:\n        torch.cuda"
        ).replace("    dist.", "        dist.")
        + LOOP
        + CALL,
        "--local-rank {local_rank}",
    ),
    "imagenet": (
        HEAD + IMAGENET + LOOP + STARTS,
        "--multiprocessing-distributed --world-size 1 --rank 0 --dist-url tcp://127.0.0.1:23456",
    ),
}


def tried(
    folder: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    port: str,
    arguments: str | None = None,
    started: str = "port.py",
) -> Verdict:
    monkeypatch.chdir(folder)
    script(folder, TRAIN)
    script(folder, port, "port.py")
    given = None if arguments is None else arguments.split()
    options = VerifyOptions(
        script=Path("train.py"), converted=Path(started), timeout=20, converted_arguments=given
    )
    scratch = folder.parent / f"{folder.name}-scratch{len(given or ())}{started}"
    scratch.mkdir()
    subject = replace(subject_of(options), torchrun=False, float32=False)
    return run_with_advice(subject, 2, server, scratch, Heard())


@pytest.mark.torchrun
@pytest.mark.parametrize("port", PORTS)
def test_what_a_port_asks_for_that_trains_alone_or_fails_is_said_and_serves(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    text, arguments = PORTS[port]
    try:
        told = tried(tmp_path, server, monkeypatch, text).remarks[0]
        assert told.startswith("its ranks never meet in a process group: each trains by itself: it asks for ")
    except RunError as failed:
        told = str(failed).splitlines()[-1]
    assert "torchrun sets RANK, LOCAL_RANK, WORLD_SIZE" in told
    assert told.endswith(f'to verify it with them: --converted-arguments "{arguments}"')
    verdict = tried(tmp_path, server, monkeypatch, text, arguments)
    assert verdict.same, verdict.float64.first
    assert verdict.met


@pytest.mark.torchrun
def test_so_is_what_one_asks_for_that_fails(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="port.py: failed") as failed:
        tried(tmp_path, server, monkeypatch, HEAD + SLURM + LOOP + "\nmain()\n")
    first, *_, said, _, _, _ = lines = str(failed.value).splitlines()
    assert "SLURM_PROCID" in first
    assert said.startswith("  it asks for SLURM_NTASKS, SLURM_PROCID; torchrun sets RANK")
    assert said.endswith("to verify it: --converted with a file of these lines")
    script(tmp_path, "\n".join(line.strip() for line in lines[-3:]), "starter.py")
    verdict = tried(tmp_path, server, monkeypatch, HEAD + SLURM + LOOP + "\nmain()\n", started="starter.py")
    assert verdict.same, verdict.float64.first
    assert verdict.met


def test_variables_that_torchrun_has_no_name_for_are_only_named() -> None:
    text = "os.environ['SLURM_PROCID'], os.environ['SLURM_NODELIST']"
    assert "these lines" not in advice([ast.parse(text)], (), False, "port.py")


@pytest.mark.parametrize(
    ("text", "given", "starts", "arguments"),
    [
        ('p.add_argument("--local_rank")', (), False, "--local_rank {local_rank}"),
        ('p.add_argument("--local_rank")', ("--local_rank=0",), False, None),
        ('p.add_argument("--local_rank")', ("--local-rank", "0"), False, None),
        ('p.add_argument("-r", "--rank")\np.add_argument("--world_size")', (), False,
         "--rank {rank} --world_size {world}"),
        ('p.add_argument("--local_world_size", type=int)', (), False, "--local_world_size {world}"),
        ('p.add_argument("--distributed", action="store_true")', (), False, "--distributed"),
        ('p.add_argument("--distributed", action="store_true")', ("--lr", "0.5"), False, "--distributed"),
        ('p.add_argument("--distributed", type=int)', (), False, None),
        ('p.add_argument("--gpus", type=int)', (), True, "--gpus {world}"),
        ('p.add_argument("--gpus", type=int)', (), False, None),
        ('p.add_argument("--world-size", type=int)', (), True, None),
        ("os.environ['LOCAL_RANK']", (), False, None),
    ],
)  # fmt: skip
def test_what_a_port_asks_for(text: str, given: tuple[str, ...], starts: bool, arguments: str | None) -> None:
    told = advice([ast.parse(text)], given, starts, "port.py").partition("--converted-arguments ")[2]
    assert told == (f'"{" ".join([*given, arguments])}"' if arguments else "")


def test_open_mpis_variables() -> None:
    told = advice([ast.parse("rank = int(os.environ['OMPI_COMM_WORLD_RANK'])")], (), False, "port.py")
    assert told.startswith("it asks for OMPI_COMM_WORLD_RANK; torchrun sets RANK")


@pytest.mark.parametrize(("kind", "helps"), [("crash", True), ("hang", True), ("memory", False)])
def test_another_start_is_named_where_it_may_help(
    kind: str, helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    def fails(*given: object) -> Verdict:
        raise RunError("no", {"mode": "ddp", "kind": kind})

    monkeypatch.setattr(launches, "run_trial", fails)
    with pytest.raises(RunError) as failed:
        run_with_advice(subject, 2, cast("Server", None), tmp_path, Heard())
    assert ("--local_rank {local_rank}" in str(failed.value)) is helps
