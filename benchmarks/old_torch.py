"""Conversions on old versions of torch: what two ranks have learned there, against the newest.

`python benchmarks/old_torch.py PYTHON ... [SCRIPT ...]`, with interpreters (paths) of environments that have torch and
numpy < 2. Python 3.8 with torch 1.13.1 is the floor (`python3.8 -m venv V; V/bin/pip install torch==1.13.1 "numpy<2"`).
The first column is this interpreter's. Ranks are started by environment variables: torch 1.13's torchrun is broken on
Python 3.11.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dp2ddp.runtime.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
RANK = Path(__file__).with_name("old_torch_rank.py")
SCRIPTS = (
    *(
        "accumulate_remainder",
        "center_loss",
        "cifar_style_augmented",
        "dcgan_three_backwards",
        "gan_two_wrapped",
    ),
    *(
        "lbfgs_closure",
        "lstm_dim1",
        "masked_lm_noam",
        "mixup_cutmix",
        "kd_frozen_teacher",
        "logging_with_handlers",
    ),
    *("own_device_lookup", "engine_with_hooks", "early_stop_plateau_rollback"),
)
Numbers = list[list[float]]


def main(pythons: list[str], names: list[str]) -> int:
    versions = [version_of(python) for python in pythons]
    print(f"{'':32}", *(f"{version:>12}" for version in versions))
    is_same = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            script = converted(name, Path(folder))
            newest, *others = [numbers_of(python, script) for python in pythons]
        told = [f"{sum(map(len, newest))} numbers" if isinstance(newest, list) else newest]
        for other in others:
            difference = distance(newest, other)
            is_same &= difference < 1e-9
            told.append(f"{difference:.0e}" if isinstance(other, list) else other)
        print(f"{name:32}", *(f"{word:>12}" for word in told), flush=True)
    return int(not is_same)


def version_of(python: str) -> str:
    asks = (
        "import sys, torch; print('%d.%d' % sys.version_info[:2], torch.__version__.split('+')[0], sep='/')"
    )
    return subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()


def converted(name: str, folder: Path) -> Path:
    source = next((ROOT / "tests" / "corpus").rglob(f"{name}.py"))
    script = folder / "train.py"
    shutil.copy(source, script)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script)]
    told = subprocess.run(
        command, env={**os.environ, "DP2DDP_CODEMOD": "small"}, capture_output=True, text=True
    )
    if not (folder / "ddp_helpers.py").exists():
        raise SystemExit(f"{name} is not converted: {told.stdout}{told.stderr}")
    return folder / "train_ddp.py"


def numbers_of(python: str, script: Path) -> Numbers | str:
    """What rank 0 has learned, if rank 1 has learned the same; or what went wrong."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        shutil.copytree(script.parent, folder)
        places = {
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        ranks = []
        for rank in range(2):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
            command = [python, str(RANK), str(folder / script.name), str(folder / f"{rank}.json")]
            with open(folder / f"{rank}.log", "w") as log:
                ranks.append(
                    subprocess.Popen(
                        command, cwd=folder, env={**os.environ, **places, **own}, stdout=log, stderr=log
                    )
                )
        for process in ranks:
            try:
                process.wait(timeout=150)
            except subprocess.TimeoutExpired:
                process.kill()
        try:
            first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
        except FileNotFoundError:
            print(*((folder / f"{rank}.log").read_text()[-1500:] for rank in range(2)), file=sys.stderr)
            return "failed"
    return first if first and first == second else "ranks differ"


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
