"""Writes each example's train_ddp.py anew: `python3 examples/convert.py [NAME ...]`; review the diff."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / ".ci"))

import environment  # noqa: E402  (found through the line above)


def main() -> int:
    environment.enter()
    names = sys.argv[1:] or sorted(path.parent.name for path in HERE.glob("*/train_ddp.py"))
    return max([convert(script_of(HERE / name)) for name in names])


def script_of(example: Path) -> Path:
    """What is converted: a script, or a notebook."""
    script = example / "train.py"
    return script if script.exists() else script.with_suffix(".ipynb")


def convert(script: Path) -> int:
    environment.say(f"{script.parent.name}/train_ddp.py")
    out = script.with_name("train_ddp.py")
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script), "-o", str(out), "--force"]
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main())
