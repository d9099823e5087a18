"""torchrun's own main, with what the agent itself says kept apart from what the ranks say.

The agent answers a failing rank with forty lines of its own on stderr, after the script's traceback. Its ranks inherit
file descriptor 2; the agent writes to sys.stderr. So sys.stderr goes to a file in the run folder, and the ranks print
as they do.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)

from pathlib import Path

from dp2ddp.copies.namespace import enter
from dp2ddp.runtime.processes import adopt_orphans, die_with_parent, end_children, parent_variable
from dp2ddp.runtime.stage import Stage


def main() -> None:
    """`python agent.py RUN-FOLDER TORCHRUN-ARGUMENTS...`"""
    die_with_parent()
    adopt_orphans()
    stage_file = Path(sys.argv[1]) / "stage.json"  # the doctor's ranks have none
    holder = Stage.from_json(stage_file.read_text(encoding="utf-8")).holder if stage_file.exists() else None
    if holder:
        enter(holder)  # and the ranks with it
    os.environ.update(parent_variable())
    sys.stderr = (Path(sys.argv[1]) / "torchrun.err").open("w", buffering=1)
    from torch.distributed.run import main as torchrun  # after: its loggers take sys.stderr as they find it

    try:
        torchrun(sys.argv[2:])  # the exception of a failing rank goes to sys.stderr as well
    finally:
        end_children()


if __name__ == "__main__":
    main()
