"""What `verify` costs beside the two runs it needs: `python benchmarks/overhead.py [example] [times]`.

Own time is what a user would wait for without comparing: the script in dp mode plus the converted one
in ddp mode, each alone. Everything on virtual devices, alternating, medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(example: str, times: int) -> None:
    script = ROOT / "examples" / example / "train.py"
    converted = script.with_name("train_ddp.py")
    dp, ddp, verify = [], [], []
    for _ in range(times):
        dp.append(seconds("run", script, "--mode", "dp", "-n", 2, "--virtual"))
        ddp.append(seconds("run", converted, "--mode", "ddp", "-n", 2, "--virtual"))
        verify.append(seconds("verify", script, "--converted", converted, "-n", 2))
    own = statistics.median(dp) + statistics.median(ddp)
    whole = statistics.median(verify)
    print(
        f"{example}: own {own:.1f} s (dp {statistics.median(dp):.1f}, ddp {statistics.median(ddp):.1f}), "
        f"verify {whole:.1f} s: {whole - own:+.1f} s, {whole / own:.2f} times"
    )


def seconds(*arguments: str | int | Path) -> float:
    command = [sys.executable, "-m", "dp2ddp", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - start


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cifar_bn", int(sys.argv[2]) if len(sys.argv) > 2 else 3)
