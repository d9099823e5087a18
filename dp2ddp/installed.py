"""What a light installation lacks: dp2ddp alone converts and checks, with its extra `verify` it runs scripts as well.

Messages name the packages and not the extra: pip takes `dp2ddp[verify]` only from where dp2ddp itself came from (a
clone, a wheel, an index), which is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from dp2ddp.errors import MissingError

NEEDED_BY_RUNS = ("torch", "msgspec", "numpy", "psutil", "safetensors", "xxhash")  # the extra `verify`


def missing_for_runs() -> list[str]:
    """What running scripts needs and is not installed; nothing is imported."""
    return [name for name in NEEDED_BY_RUNS if find_spec(name) is None]


def install(names: Iterable[str]) -> str:
    """The command that installs packages, which are called as their modules are."""
    return f"pip install {' '.join(names)}"


def require_what_runs_need(command: str) -> None:
    """Raise a MissingError of one line unless all is there; nothing is imported."""
    missing = missing_for_runs()
    if missing:
        raise MissingError(
            f"{command} runs scripts, which needs {', '.join(missing)}: {install(missing)} "
            "(converting needs none of it)"
        )
