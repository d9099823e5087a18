"""The options of `dp2ddp verify`, of `dp2ddp bench` and of `dp2ddp.testing`: what to verify, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import OptionError

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption

_OF_OWN_VERSIONS = {
    "aligned": "a conversion of ours has to draw the same numbers",
    "converted_arguments": "it is that script's arguments",
    "launcher": "a conversion of ours is started by torchrun",
}


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What to verify, and how. Raises OptionError if two options do not go together."""

    script: Path
    converted: Path | None = None  # a version of the user's own; without it the script is converted
    devices: tuple[int, ...] = ()  # empty: as many as the script names, or 2
    arguments: tuple[str, ...] = ()
    converted_arguments: tuple[str, ...] | None = None  # where they are others than the original's
    steps: int | None = None  # end both after so many optimizer steps
    every: int = 1  # tensors are recorded and compared at each N-th step
    only_gradients: bool = False  # judged: gradients and parameters of every step
    aligned: bool = False  # judged with the same random numbers in both runs (runtime/aligned_draws.py)
    launcher: str | None = None  # torchrun or python, which starts the version given; None: as its text says
    timeout: float = 120.0  # seconds without progress
    accept: tuple[str, ...] = ()  # answers to hazards of our conversion (codemod/plans/acceptance.py)
    as_module: bool = False  # the script is a module, as `python -m` takes it

    def __post_init__(self) -> None:
        if self.converted is not None and self.accept:
            raise OptionError("--accept answers hazards of our conversion: not with --converted")
        _ = self.answers
        for name, reason in _OF_OWN_VERSIONS.items():
            if self.converted is None and getattr(self, name) not in (None, False):
                raise OptionError(f"--{name.replace('_', '-')} needs --converted: {reason}")

    @property
    def answers(self) -> tuple[AcceptOption, ...]:
        """The answers to hazards, parsed; OptionError for what is none."""
        from dp2ddp.codemod.plans.acceptance import accept_option

        try:
            return tuple(map(accept_option, self.accept))
        except ValueError as error:
            raise OptionError(str(error)) from error
