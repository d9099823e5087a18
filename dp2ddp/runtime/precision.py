"""Which precision the script asks for, of autocast and by hand: in the float64 stage all numbers are doubles, the
wish stays a fact.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.overrides
from torch.amp.autocast_mode import autocast

from dp2ddp.runtime.double import DoublePrecision
from dp2ddp.runtime.stacks import users_line
from dp2ddp.trace.recorder import Recorder


def observe_precision(recorder: Recorder) -> None:
    """Let the recorder see which precision the script asks for."""
    kind: Any = autocast
    enter = kind.__enter__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        if self._enabled:
            recorder.saw_precision(str(self.fast_dtype).removeprefix("torch."))
        return enter(self)

    kind.__enter__ = __enter__
    modes: Any = torch.overrides
    for mode in modes._get_current_function_mode_stack():
        if isinstance(mode, DoublePrecision):
            mode.observers.append(lambda tensor, dtype: recorder.saw_cast(tensor, dtype, users_line()))
    scaler: Any = torch.amp.GradScaler
    scaler.scale = _scaling(scaler.scale, recorder)


def _scaling(original: Any, recorder: Recorder) -> Any:
    """GradScaler.scale; Any: it stands for a function of torch."""

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        if self.is_enabled():
            recorder.saw_scaling(users_line())
        return original(self, outputs)

    return scale
