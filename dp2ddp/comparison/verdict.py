"""The verdict on a script on one number of devices: all comparisons, and what explains their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.causes.catalogue import OTHER_RANDOM_NUMBERS, Cause
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.output_comparison import Outside

# Not its losses: each rank of a port has its own. Not its parameters: where a gradient is nothing but rounding, RMSprop
# makes a full step of it, and one of the other sign of the other rounding.
_NUMBERS = ("initial state", "gradient")
_DECIDED = ("learning rate", "decision", "steps")  # by the script, from numbers


@dataclass(frozen=True)
class HeldMemory:
    """The most that a run's processes were seen to hold of their own, without workers of loaders."""

    run: Annotated[str, Meta(description="dp in float64, or the like")]
    bytes: Annotated[int, Meta(description="0: it was over before anybody looked", ge=0)]


@dataclass(frozen=True)
class Verdict(Outside):
    """Both runs of a script, compared.

    float64 is judged at every point, float32 by the numbers of its first step alone: what doubles hide, half precision
    on one side, shows there; later a decision that hangs on a number (the sign of a gradient, a step that a scaler
    skips) may fall otherwise by rounding, which a single run with other rounding need not show.
    """

    world: int
    float64: Comparison
    float32: Comparison | None  # None: was not trained in it
    seconds: tuple[float, float]  # of the two float64 runs
    remarks: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()  # likeliest first
    printed: tuple[str, str] = ("", "")  # stdout: of DataParallel, of rank 0
    lockstep: bool = False  # each step was judged from DataParallel's own state
    aligned: Aligned | None = None  # a port that differs, run again with DataParallel's random numbers
    memory: tuple[HeldMemory, ...] = ()  # of all its runs
    in_turn: bool = False  # for lack of memory not all runs went at once; else they shared the machine
    hidden: tuple[str, ...] = ()  # faults that judging the aligned runs would hide, a sentence each
    met: bool = True  # the ranks, in a process group
    last_words: tuple[str, ...] = ()  # of DataParallel's run on stderr, where its exit code is not 0
    unshared: tuple[str, ...] = ()  # sentences: what two runs of the original do not share, though these do
    unsteady: Difference | None = None  # where DataParallel parts from itself: nothing can be judged
    by_hashes: bool = False  # trains the same where strings have the same hashes on all ranks
    only_gradients: bool = False  # what it prints, leaves behind and ends with is shown, not judged

    @property
    def all_remarks(self) -> tuple[str, ...]:
        """Those on the runs, then those on their numbers."""
        return *self.remarks, *self.float64.remarks

    @property
    def same(self) -> bool:
        """Whether both trained the same and, unless `only_gradients`, printed, left behind and ended with the same."""
        outside = self.prints_the_same and self.files.same and self.codes[0] == self.codes[1]
        return self.trains_the_same and (self.float64.steps > 0 if self.only_gradients else outside)

    @property
    def trains_the_same(self) -> bool:
        """Whether every step does, with numbers of its own."""
        return self.float64.same and not (self.single_only or self.hidden or self.unsteady)

    @property
    def single_only(self) -> bool:
        """Whether training differs in float32 alone, by more than rounding makes.

        That is half precision on one side, which doubles hide.
        """
        single = self.float32
        differences = () if single is None or single.first is None else (single.first, *single.also)
        by_numbers = any(
            each.step == 0 and each.kind in _NUMBERS and not each.is_allowed for each in differences
        )
        return self.float64.same and by_numbers

    @property
    def random_only(self) -> bool:
        """Whether training differs in nothing but the random numbers that the port draws.

        Where all steps are the same with its own numbers, too, and one side ends sooner or takes another rate, numbers
        are not what parts them, though a decision may fall otherwise with other numbers: an early stop.
        """
        first = self.float64.first
        if first is None or first.kind in _DECIDED:
            return False
        return self.aligned is not None and self.aligned.same and not self.by_hashes

    @property
    def still_parts(self) -> Comparison | None:
        """The aligned runs, where other random numbers look like the cause and are not all: these part as well."""
        looks = bool(self.causes) and self.causes[0].code in OTHER_RANDOM_NUMBERS
        aligned = self.aligned.comparison if self.aligned is not None else None
        return aligned if looks and aligned is not None and not aligned.same else None

    @property
    def compared_nothing(self) -> bool:
        """Whether there was nothing in either run that could have differed, or both failed before they trained."""
        seen = (
            not self.lost if self.trained else not self.codes[0] and (self.stdout.lines or self.files.files)
        )
        return self.same and not seen

    @property
    def lost(self) -> bool:
        """Whether training begins with a loss that is NaN or infinite: no number behind it tells two runs apart."""
        return self.float64.lost_from == 0

    @property
    def trained(self) -> bool:
        """With an optimizer, or by hand."""
        return self.float64.steps > 0 or self.float64.unstepped_losses > 0
