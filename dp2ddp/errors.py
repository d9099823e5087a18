"""Every error that dp2ddp raises on purpose: one line that says what, where, and what now.

Dp2DdpError                 the command line prints it as one line and exits with 3
├── SourceError             a file that cannot be read, parsed or written
├── ConversionError         a plan that cannot be carried out (edits that contradict each other)
├── HazardError             a script that cannot be converted without its owner (the command exits with 1)
├── OptionError             options that do not go together, or do not exist (the command exits with 2)
├── UnmatchedAcceptanceError   an option that answers a hazard where there is none (the command exits with 2)
├── RunError                a script that failed, hung or could not be started
├── MissingError            a package that is not installed, and what installs it
└── TraceError              a record of a run that is missing, unreadable, or has no room where it is to lie
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in dp2ddp/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Dp2DdpError(Exception):
    """Something that a person can act on; its text is the whole message."""


class SourceError(Dp2DdpError):
    """A source file cannot be read, parsed or written."""


class ConversionError(Dp2DdpError):
    """A plan cannot be carried out."""


class HazardError(Dp2DdpError):
    """A conversion has open hazards; `report` says which."""

    def __init__(self, text: str, report: str) -> None:
        super().__init__(text)
        self.report = report


class OptionError(Dp2DdpError, ValueError):
    """What is asked for does not go together, or does not exist."""


class UnmatchedAcceptanceError(Dp2DdpError):
    """`--accept` names a hazard that is not there: a person answered for a line that has moved, say."""


class RunError(Dp2DdpError):
    """A script failed, hung or could not be started; `details` are the same as data (docs/json.md)."""

    def __init__(self, text: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(text)
        self.details = details


class TraceError(Dp2DdpError):
    """A record of a run is missing, unreadable, or has no room where it is to lie."""


class MissingError(Dp2DdpError):
    """What is asked for needs a package that a light installation does not have."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What may be meant by a word that is none of those that are known, to end a message with; or nothing."""
    import difflib  # for a mistake only

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def refuse_unknown_codes(codes: Iterable[str], known: Iterable[str]) -> None:
    """OptionError for the first of some codes or families (`DDP6`) that no rule has; with what may be meant."""
    every = list(known)
    for code in codes:
        if not any(each.startswith(code) for each in every):
            raise OptionError(f"{code}: no such rule{did_you_mean(code, every)}; `dp2ddp rules` lists them")
