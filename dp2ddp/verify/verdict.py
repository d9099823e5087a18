"""Everything that was found about a script on one number of devices."""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.verify.causes.cause import Cause
from dp2ddp.verify.compare import Comparison
from dp2ddp.verify.outputs import FilesComparison, TextComparison


@dataclass(frozen=True)
class Verdict:
    """Both runs of a script, compared. float64 is judged, float32 shown."""

    world: int
    float64: Comparison
    float32: Comparison
    stdout: TextComparison
    voices: tuple[int, ...]  # ranks other than 0 that printed something
    files: FilesComparison
    codes: tuple[int, int]  # exit codes: DataParallel, torchrun
    seconds: tuple[float, float]  # of the two float64 runs, which shared the machine
    remarks: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()  # likeliest first
    printed: tuple[str, str] = ("", "")  # stdout: of DataParallel, of rank 0

    @property
    def same(self) -> bool:
        outside = self.stdout.same and not self.voices and self.files.same and self.codes[0] == self.codes[1]
        return self.float64.same and outside

    @property
    def trained(self) -> bool:
        return self.float64.steps > 0
