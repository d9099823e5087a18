"""Which precision the script asks autocast for: in the float64 stage all numbers are doubles, the wish stays a fact."""

from __future__ import annotations

import functools
from typing import Any

from torch.amp.autocast_mode import autocast

from dp2ddp.trace.recorder import Recorder


def observe_precision(recorder: Recorder) -> None:
    kind: Any = autocast
    enter = kind.__enter__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        if self._enabled:
            recorder.saw_precision(str(self.fast_dtype).removeprefix("torch."))
        return enter(self)

    kind.__enter__ = __enter__
