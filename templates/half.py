"""Whether a model computes in float16, whose gradients must not grow on their way: times W they may be infinite."""

import functools
import os
import re
import sys
import sysconfig
from typing import Any

import torch


class HalfPrecision:
    """Whether autocast has been entered with float16 in this process, be it inside of a forward."""

    seen = False
    is_named: "bool | None" = (
        None  # whether the project's own files speak of autocast; None: not looked at yet
    )


# What enters autocast, in a forward too: that a step does so is known too late for that step.
AUTOCASTS = re.compile(r"autocast\s*\(|import [^\n]*\bautocast\b|\bcustom_fwd\b")


def notice_half_precision() -> None:
    """Let every autocast with float16 be noticed from now on."""
    autocast: Any = torch.amp.autocast_mode.autocast
    original = autocast.__enter__
    if hasattr(original, "notices_half"):
        return

    @functools.wraps(original)
    def enter(self: Any) -> Any:
        if self._enabled and getattr(self, "fast_dtype", torch.float16) == torch.float16:
            HalfPrecision.seen = True
        return original(self)

    vars(enter)["notices_half"] = True
    autocast.__enter__ = enter


def may_be_half(parameters: "list[torch.nn.Parameter]") -> bool:
    """Whether something may be computed in float16: by autocast, by apex, or as the parameters are."""
    return (
        HalfPrecision.seen
        or autocasts_somewhere()
        or "apex.amp" in sys.modules
        or any(parameter.dtype == torch.float16 for parameter in parameters)
    )


def autocasts_somewhere() -> bool:
    """Whether a file of the project may enter autocast: libraries do so only to leave it."""
    if HalfPrecision.is_named is None:
        HalfPrecision.is_named = any(AUTOCASTS.search(text) for text in texts_of_project())
    return HalfPrecision.is_named


def texts_of_project() -> "list[str]":
    """The modules that are imported by now, but for Python's, the libraries' and this one."""
    return [text_of(module) for name, module in [*sys.modules.items()] if not is_of_library(name)]


def is_of_library(name: str) -> bool:
    """Whether a module is Python's, installed, or dp2ddp's own."""
    places = (sysconfig.get_path(place) for place in ("stdlib", "platstdlib", "purelib", "platlib"))
    libraries = (*places, os.path.dirname(os.path.dirname(torch.__file__)))
    package = name.partition(".")[0]  # torch.ops, for one, names a file that is none
    paths = (getattr(sys.modules.get(module), "__file__", None) or "" for module in (name, package))
    return package == "dp2ddp" or any(path.startswith(libraries) for path in paths)


def text_of(module: Any) -> str:
    """The text of a module that lies in a file of Python's."""
    path = getattr(module, "__file__", None) or ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() if path.endswith(".py") else ""
    except OSError:
        return "@custom" + "_fwd" if path else ""  # it may be so
