"""How 2 ranks end under torchrun: `python benchmarks/exits.py [runs of each ending] [which]` (default 50, all)."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from ranks import Ending, torchrun  # noqa: E402  (found through the line above)

ENDINGS = ("return", "early", "raise", "exit", "wait")  # wait: Ctrl-C while both ranks sleep


def main(runs: int, endings: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(shutil.copy(ROOT / "tests" / "programs" / "endings.py", folder))
        subprocess.run([sys.executable, "-m", "dp2ddp", "convert", str(script)], check=True)
        converted = script.with_name("endings_ddp.py")
        for how in endings:
            wait = "step 2" if how == "wait" else None
            show(how, [torchrun(converted, how, interrupt_at=wait) for _ in range(runs)])


def show(how: str, endings: list[Ending]) -> None:
    codes = {code: sum(e.code == code for e in endings) for code in {e.code for e in endings}}
    seconds = [e.seconds for e in endings]
    print(
        f"{how:7s} exit codes {codes}  left behind {sum(e.left_behind for e in endings)}  "
        f"seconds median {statistics.median(seconds):.1f}, longest {max(seconds):.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50, sys.argv[2:] or list(ENDINGS))
