"""What converted scripts call, to import from: `from dp2ddp.helpers import WholeBatchDDP, run_on_rank0`.

A script gets its helpers beside it; with `dp2ddp convert --import` it has them from here. They are all that
`dp2ddp.templates` defines, and need torch and the standard library alone. A name loads the module that defines it, and
what that needs (PEP 562): the plain helpers are one module, and how a file is saved.
"""

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp2ddp.templates.arguments import *
    from dp2ddp.templates.batches import *
    from dp2ddp.templates.buffers import *
    from dp2ddp.templates.compiled import *
    from dp2ddp.templates.ddp import *
    from dp2ddp.templates.feed import *
    from dp2ddp.templates.half import *
    from dp2ddp.templates.in_turn import *
    from dp2ddp.templates.late_sums import *
    from dp2ddp.templates.lean import *
    from dp2ddp.templates.loaded import *
    from dp2ddp.templates.loader_state import *
    from dp2ddp.templates.loading import *
    from dp2ddp.templates.messages import *
    from dp2ddp.templates.missing import *
    from dp2ddp.templates.outputs import *
    from dp2ddp.templates.own_device import *
    from dp2ddp.templates.parted import *
    from dp2ddp.templates.parts import *
    from dp2ddp.templates.plain import *
    from dp2ddp.templates.process import *
    from dp2ddp.templates.rank_zero_first import *
    from dp2ddp.templates.rank_zero_output import *
    from dp2ddp.templates.replicas import *
    from dp2ddp.templates.rows import *
    from dp2ddp.templates.saving import *
    from dp2ddp.templates.seeding import *
    from dp2ddp.templates.shared import *
    from dp2ddp.templates.shared_state import *
    from dp2ddp.templates.synced import *
    from dp2ddp.templates.temporary import *
    from dp2ddp.templates.tracking import *
    from dp2ddp.templates.whole import *
    from dp2ddp.templates.writes import *


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
