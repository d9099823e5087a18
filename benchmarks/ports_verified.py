"""Do ports train the same? `python benchmarks/ports_verified.py [NAMES] [-n 2] [--steps 12]`.

Of each folder in benchmarks/ports, `dp2ddp verify` compares train_dp.py with its conversion, with the port by hand, and
with those for Accelerate and Fabric: a minute each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from ports import KINDS, NAMES, scratch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    print(f"| script | {' | '.join(KINDS)} |\n|{'---|' * (len(KINDS) + 1)}")
    for name in options.names:
        with scratch(name) as folder:
            words = [verdict(folder, script, options.n, options.steps) for script in KINDS.values()]
        print(f"| {name} | {' | '.join(words)} |", flush=True)


def verdict(folder: Path, script: str, world: int, steps: int) -> str:
    """What verify's headline says of one version."""
    numbers = ["-n", str(world), "--steps", str(steps)]
    command = [
        sys.executable,
        "-m",
        "dp2ddp",
        "verify",
        "train_dp.py",
        "--converted",
        f"{script}.py",
        *numbers,
    ]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    headline = told.stdout.partition("\n")[0]
    if headline.startswith("SAME"):
        return "the same"
    if "trains the same with the same ones" in headline:
        return "the same with the same random numbers"
    return "another training" if headline else f"not run: {told.stderr.strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
