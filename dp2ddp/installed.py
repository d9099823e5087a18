"""What a light installation lacks: `pip install dp2ddp` converts and checks, `dp2ddp[verify]` runs scripts as well."""

from __future__ import annotations

from importlib.util import find_spec

from dp2ddp.errors import MissingError

NEEDED_BY_RUNS = ("torch", "numpy", "psutil", "safetensors", "xxhash")  # the extra `verify`
INSTALL = 'pip install "dp2ddp[verify]"'


def require_what_runs_need(command: str) -> None:
    """Raise a MissingError of one line unless all is there; nothing is imported."""
    missing = [name for name in NEEDED_BY_RUNS if find_spec(name) is None]
    if missing:
        raise MissingError(
            f"{command} runs scripts, which needs {', '.join(missing)}: {INSTALL} (converting needs none of it)"
        )
