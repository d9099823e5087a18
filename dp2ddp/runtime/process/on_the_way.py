"""In a rank of a DataParallel script that `dp2ddp launch` starts: run it, its conversion in the place of its files.

Started by path (`python .../on_the_way.py START.json ARGUMENTS`), by torchrun, as boot.py is.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # this folder, which `python PATH` puts first

import json
from collections.abc import Mapping
from pathlib import Path

from dp2ddp.runtime.hang.stacks import Ending
from dp2ddp.runtime.process.boot import end_of_script, run_as_main
from dp2ddp.runtime.process.overlay import Overlay, write_overlay


def start_words(
    folder: Path, script: str, module: str | None, files: Mapping[Path, bytes]
) -> tuple[str, str]:
    """What torchrun starts; what it reads lies in a folder that must be there as long as the ranks are."""
    start = folder / "start.json"
    pairs = write_overlay(folder / "overlay", files.items())
    start.write_text(json.dumps({"script": script, "module": module, "pairs": pairs}), encoding="utf-8")
    return str(Path(__file__).absolute()), str(start)


def main() -> None:
    start = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    overlay = Overlay(tuple((own, other) for own, other in start["pairs"]))
    overlay.install()
    end = Ending()
    with end_of_script(end):
        run_as_main(start["script"], start["script"], tuple(sys.argv[2:]), start["module"], overlay)
    sys.exit(end.code)


if __name__ == "__main__":
    main()
