"""What converted scripts call, to import from: `from dp2ddp.helpers import WholeBatchDDP, run_on_rank0`.

A script gets its helpers beside it; with `dp2ddp convert --import` it has them from here. They are all that
`dp2ddp.templates` defines, and need torch and the standard library alone. A name loads the module that defines it, and
what that needs (PEP 562).
"""

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp2ddp.templates.alike import *
    from dp2ddp.templates.bases import *
    from dp2ddp.templates.batches import *
    from dp2ddp.templates.broadcast import *
    from dp2ddp.templates.checkpoints import *
    from dp2ddp.templates.ddp import *
    from dp2ddp.templates.draws import *
    from dp2ddp.templates.files import *
    from dp2ddp.templates.functions import *
    from dp2ddp.templates.guard import *
    from dp2ddp.templates.held import *
    from dp2ddp.templates.loader import *
    from dp2ddp.templates.meeting import *
    from dp2ddp.templates.model import *
    from dp2ddp.templates.one_rank import *
    from dp2ddp.templates.overlapping import *
    from dp2ddp.templates.parts import *
    from dp2ddp.templates.rank0 import *
    from dp2ddp.templates.ranks import *
    from dp2ddp.templates.replicas import *
    from dp2ddp.templates.rows import *
    from dp2ddp.templates.streams import *
    from dp2ddp.templates.sums import *
    from dp2ddp.templates.synced import *
    from dp2ddp.templates.trackers import *
    from dp2ddp.templates.trees import *
    from dp2ddp.templates.turns import *
    from dp2ddp.templates.writing import *


@cache
def homes() -> dict[str, str]:
    """The module of each function and class that the templates define: read, not imported."""
    definition = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
    texts = {
        path.name.removesuffix(".py"): path.read_text(encoding="utf-8")
        for path in files("dp2ddp.templates").iterdir()
        if path.name.endswith(".py")
    }
    return {name: module for module, text in texts.items() for name in definition.findall(text)}


if not TYPE_CHECKING:  # or every name would do for a type checker

    def __getattr__(name: str) -> Any:
        """Look a helper up in the module that defines it, once."""
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"dp2ddp.templates.{homes()[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(homes())
