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
    from dp2ddp.templates.small.batches import *
    from dp2ddp.templates.small.broadcast import *
    from dp2ddp.templates.small.checkpoints import *
    from dp2ddp.templates.small.ddp import *
    from dp2ddp.templates.small.draws import *
    from dp2ddp.templates.small.files import *
    from dp2ddp.templates.small.functions import *
    from dp2ddp.templates.small.guard import *
    from dp2ddp.templates.small.held import *
    from dp2ddp.templates.small.loader import *
    from dp2ddp.templates.small.meeting import *
    from dp2ddp.templates.small.model import *
    from dp2ddp.templates.small.one_rank import *
    from dp2ddp.templates.small.rank0 import *
    from dp2ddp.templates.small.ranks import *
    from dp2ddp.templates.small.replicas import *
    from dp2ddp.templates.small.rows import *
    from dp2ddp.templates.small.streams import *
    from dp2ddp.templates.small.sums import *
    from dp2ddp.templates.small.synced import *
    from dp2ddp.templates.small.trackers import *
    from dp2ddp.templates.small.trees import *
    from dp2ddp.templates.small.turns import *


@cache
def homes() -> dict[str, str]:
    """The module of each function and class that the templates define: read, not imported."""
    definition = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
    texts = {
        path.name.removesuffix(".py"): path.read_text(encoding="utf-8")
        for path in files("dp2ddp.templates.small").iterdir()
        if path.name.endswith(".py")
    }
    return {name: module for module, text in texts.items() for name in definition.findall(text)}


if not TYPE_CHECKING:  # or every name would do for a type checker

    def __getattr__(name: str) -> Any:
        """Look a helper up in the module that defines it, once."""
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"dp2ddp.templates.small.{homes()[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(homes())
