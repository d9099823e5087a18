"""Which precision the script asks for, of autocast and by hand: in the float64 stage all numbers are doubles, the
wish stays a fact.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.overrides
from torch.amp.autocast_mode import autocast

from dp2ddp.runtime.double import DoublePrecision
from dp2ddp.runtime.stacks import users_line
from dp2ddp.taps import Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import SCALED


def observe_precision(recorder: Recorder) -> None:
    """Let the recorder see which precision the script asks for."""

    def enter(context: Any) -> None:
        if context._enabled:
            recorder.saw_precision(str(context.fast_dtype).removeprefix("torch."))

    def scale(scaler: Any, outputs: Any) -> None:
        if scaler.is_enabled():
            recorder.add("casts", (SCALED, users_line()))

    taps = Taps()
    taps.before("__enter__", enter, autocast)
    taps.before("scale", scale, torch.amp.GradScaler)
    modes: Any = torch.overrides
    for mode in modes._get_current_function_mode_stack():
        if isinstance(mode, DoublePrecision):
            mode.observers.append(lambda tensor, dtype: recorder.saw_cast(tensor, dtype, users_line()))
