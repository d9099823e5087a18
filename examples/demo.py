"""The main job on one example: convert, train both ways on two virtual devices, compare.

Run it with any Python >= 3.10: `python3 examples/demo.py`. The first time it makes `.venv` and fills it.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / ".ci"))

import environment  # noqa: E402  (found through the line above)

FOLDER = HERE / "cifar_bn"


def main() -> int:
    environment.enter()
    environment.say("1. in examples/cifar_bn: dp2ddp convert train.py --diff")
    diff = dp2ddp("convert", "train.py", "--diff", capture=True)
    print("\n".join(map(coloured, diff.stdout.splitlines())), flush=True)
    print(diff.stderr, flush=True)
    if diff.returncode:
        return diff.returncode
    environment.say(
        "2. dp2ddp verify train.py -n 2    (trains four times: DataParallel and DDP, float64 and float32)"
    )
    verified = dp2ddp("verify", "train.py", "-n", "2")
    print(flush=True)
    environment.say("3. to train it on two GPUs:")
    print("    cd examples/cifar_bn")
    print(
        "    dp2ddp convert train.py        # writes train_ddp.py, ddp_helpers.py (checked in here already)"
    )
    print("    torchrun --standalone --nproc-per-node 2 train_ddp.py")
    return verified.returncode


def dp2ddp(*arguments: str, capture: bool = False) -> "subprocess.CompletedProcess[str]":
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
    }  # several processes train at once on what may be two cores
    command = [sys.executable, "-m", "dp2ddp", *arguments]
    return subprocess.run(command, cwd=FOLDER, env=variables, text=True, capture_output=capture, check=False)


def coloured(line: str) -> str:
    colour = {"+": 32, "-": 31, "@": 36}.get(line[:1])
    if colour is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return line
    return f"\x1b[{colour}m{line}\x1b[0m"


if __name__ == "__main__":
    sys.exit(main())
