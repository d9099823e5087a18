"""The main job on one example: convert, train both ways on two virtual devices, compare.

Run it with any Python >= 3.10: `python3 examples/demo.py`. The first time it makes `.venv` and fills it.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402  (found through the line above)

SCRIPT = "examples/cifar_bn/train.py"


def main() -> int:
    environment.enter()
    environment.say(f"1. dp2ddp convert {SCRIPT} --diff")
    converted = dp2ddp("convert", SCRIPT, "--diff")
    print()
    environment.say(f"2. dp2ddp verify {SCRIPT} -n 2   (two virtual devices: DataParallel, then DDP)")
    compared = dp2ddp("verify", SCRIPT, "-n", "2")
    print()
    environment.say("3. to train it for real on two GPUs:")
    print(f"    dp2ddp convert {SCRIPT}")
    print("    cd examples/cifar_bn && torchrun --nproc-per-node 2 train_ddp.py")
    return converted or compared


def dp2ddp(*arguments: str) -> int:
    sys.stdout.flush()
    # two processes train at once on what may be two cores
    variables = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return subprocess.call([sys.executable, "-m", "dp2ddp", *arguments], cwd=ROOT, env=variables)


if __name__ == "__main__":
    sys.exit(main())
