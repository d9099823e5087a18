"""Conversions on old versions of torch: what two ranks have learned there, against the newest.

`python benchmarks/old_torch.py PYTHON ... [SCRIPT ...]`, with interpreters (paths) of environments that have torch and
numpy < 2. Python 3.8 with torch 1.13.1 is the floor (`python3.8 -m venv V; V/bin/pip install torch==1.13.1 "numpy<2"`).
The first column is this interpreter's; the others tell the largest difference from it and, in brackets, that of the
script itself on one process, where torch's versions compute something else. Ranks are started by environment
variables: torch 1.13's torchrun is broken on Python 3.11.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dp2ddp.runtime.process.meeting import free_port

ROOT = Path(__file__).resolve().parent.parent
RANK = Path(__file__).with_name("old_torch_rank.py")
SCRIPTS = (
    *("augmented_with_workers", "sparse_word2vec", "center_loss", "gan_two_wrapped", "lbfgs_closure"),
    *("lstm_dim1", "wgan_gp", "subclass_passthrough"),
    *("state_between_forwards", "by_hand_usual_shape"),
)
Numbers = list[list[float]]
CLOSE = 1e-9


def main(pythons: list[str], names: list[str]) -> int:
    print(f"{'':32}", *(f"{version_of(python):>12}" for python in pythons), flush=True)
    is_same = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            script, converted = convert(name, Path(folder))
            newest = numbers_of(pythons[0], converted)
            told = [f"{sum(map(len, newest))} numbers" if isinstance(newest, list) else newest]
            for python in pythons[1:]:
                other = numbers_of(python, converted)
                difference = distance(newest, other)
                told.append(f"{difference:.0e}" if isinstance(other, list) else other)
                if difference > CLOSE and isinstance(
                    other, list
                ):  # does torch itself compute something else?
                    own = [numbers_of(each, script, world=1) for each in (pythons[0], python)]
                    told[-1] += f" ({distance(*own):.0e})"
                    difference = 0.0 if distance(*own) > CLOSE else difference
                is_same &= difference < CLOSE
        print(f"{name:32}", *(f"{word:>12}" for word in told), flush=True)
    return int(not is_same)


def version_of(python: str) -> str:
    asks = (
        "import sys, torch; print('%d.%d' % sys.version_info[:2], torch.__version__.split('+')[0], sep='/')"
    )
    return subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()


def convert(name: str, folder: Path) -> tuple[Path, Path]:
    """The script, and its conversion beside it."""
    source = next((ROOT / "tests" / "corpus").rglob(f"{name}.py"))
    script = folder / "train.py"
    shutil.copy(source, script)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script)]
    told = subprocess.run(command, capture_output=True, text=True)
    if not (folder / "ddp_helpers.py").exists():
        raise SystemExit(f"{name} is not converted: {told.stdout}{told.stderr}")
    return script, folder / "train_ddp.py"


def numbers_of(python: str, script: Path, world: int = 2) -> Numbers | str:
    """What rank 0 has learned, if the others have learned the same; or what went wrong."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shutil.copytree(script.parent, folder)
        port = free_port()
        ranks = [start(python, folder / script.name, rank, world, port) for rank in range(world)]
        for process in ranks:
            try:
                process.wait(timeout=200)
            except subprocess.TimeoutExpired:
                process.kill()
        try:
            first, *others = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
        except FileNotFoundError:
            print(*((folder / f"{rank}.log").read_text()[-1500:] for rank in range(world)), file=sys.stderr)
            return "failed"
    return first if first and all(other == first for other in others) else "ranks differ"


def start(python: str, script: Path, rank: int, world: int, port: int) -> subprocess.Popen[bytes]:
    places = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "MASTER_PORT": port,
    }
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    variables.update({name: str(value) for name, value in places.items()})
    command = [python, str(RANK), str(script), str(script.parent / f"{rank}.json")]
    with open(script.parent / f"{rank}.log", "w") as log:
        return subprocess.Popen(command, cwd=script.parent, env=variables, stdout=log, stderr=log)


def distance(one: Numbers | str, other: Numbers | str) -> float:
    """The largest difference of two numbers."""
    if isinstance(one, str) or isinstance(other, str) or [*map(len, one)] != [*map(len, other)]:
        return float("inf")
    return max(
        abs(a - b) for mine, its in zip(one, other, strict=True) for a, b in zip(mine, its, strict=True)
    )


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if "/" in word]
    sys.exit(main([sys.executable, *given], [word for word in sys.argv[1:] if "/" not in word] or [*SCRIPTS]))
