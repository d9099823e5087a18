"""Writes each example's train_ddp.py and its helpers anew: `python3 examples/convert.py`. Review the diff."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / ".ci"))

import environment  # noqa: E402  (found through the line above)


def main() -> int:
    environment.enter()
    folders = {path.parent for name in ("train.py", "train.ipynb") for path in HERE.glob(f"*/{name}")}
    return max([convert(folder) for folder in sorted(folders)])


def script_of(example: Path) -> Path:
    """What is converted: a script, or a notebook."""
    script = example / "train.py"
    return script if script.exists() else script.with_suffix(".ipynb")


def convert(example: Path) -> int:
    environment.say(f"{example.name}/train_ddp.py")
    (example / "ddp_helpers.py").unlink(missing_ok=True)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script_of(example)), "--force"]
    return subprocess.call([*command, "-o", str(example / "train_ddp.py")])


if __name__ == "__main__":
    sys.exit(main())
