"""Writes each example's train_ddp.py and its helpers anew: `python3 examples/convert.py`. Review the diff.

Examples that need the full tier of helpers share them: their ddp_helpers.py is a link to `examples/ddp_helpers.py`.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / ".ci"))

import environment  # noqa: E402  (found through the line above)

HELPERS = "ddp_helpers.py"
SMALL = 500  # lines: of the plain and the lean tier


def main() -> int:
    environment.enter()
    (HERE / HELPERS).unlink(missing_ok=True)  # made anew, one script after the other adds what it lacks
    folders = {path.parent for name in ("train.py", "train.ipynb") for path in HERE.glob(f"*/{name}")}
    return max([convert(folder) for folder in sorted(folders)])


def script_of(example: Path) -> Path:
    """What is converted: a script, or a notebook."""
    script = example / "train.py"
    return script if script.exists() else script.with_suffix(".ipynb")


def convert(example: Path) -> int:
    environment.say(f"{example.name}/train_ddp.py")
    helpers = example / HELPERS
    helpers.unlink(missing_ok=True)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script_of(example)), "--force"]
    command += ["-o", str(example / "train_ddp.py")]
    answer = subprocess.call(command)
    if len(helpers.read_text().splitlines()) > SMALL:
        helpers.unlink()
        helpers.symlink_to(Path("..") / HELPERS)
        answer = subprocess.call(command)
    return answer


if __name__ == "__main__":
    sys.exit(main())
