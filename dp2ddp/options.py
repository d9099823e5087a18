"""The options of a command, each declared once: its type, its default, its help.

The command line makes click's options of the fields (cli/_options.py), a function of `import dp2ddp` takes them as
keywords (`by_keyword`), and whoever does what is asked for holds them as they were given; what they mean is a property.
Groups of fields that commands share come in the order of `--help`: those of the last base class first. What only one
command of the command line has is declared beside that command.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from dp2ddp.errors import OptionError
from dp2ddp.progress import SILENT, Progress
from dp2ddp.styles import EXACT, STYLES

if TYPE_CHECKING:
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.codemod.plans.acceptance import AcceptOption

_Keywords = ParamSpec("_Keywords")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")
_Default = TypeVar("_Default")


def option(default: _Default, help: str, *spellings: str, **how: Any) -> _Default:
    """A field that is an option of the command line, too.

    spellings: where they are others than the field's name. how: what its type does not say: `least`, `most`, `choices`,
    `metavar`, `path` (what it must be), `codes` (of whose rules), `typed` (what it does that [tool.dp2ddp] in
    somebody's pyproject.toml may not ask for: it stands on the command line alone).
    """
    metadata = {"help": help, "spellings": spellings, **how}
    made: Any = dataclasses.field(default=default, metadata=metadata)  # for type checkers it is the default
    return made  # type: ignore[no-any-return]


def argument(help: str) -> dict[str, Any]:
    """The metadata of a field that stands on the command line by its place."""
    return {"help": help, "is_argument": True}


def declared(family: type[Any]) -> Iterator[dataclasses.Field[Any]]:
    """The fields that the command line has."""
    return (each for each in dataclasses.fields(family) if each.metadata)


def by_keyword(
    family: Callable[_Keywords, _Options],
) -> Callable[[Callable[[_Options], _Result]], Callable[_Keywords, _Result]]:
    """Makes of a function of options one of keywords: its signature names them, its docstring explains them."""

    def declare(function: Callable[[_Options], _Result]) -> Callable[_Keywords, _Result]:
        @functools.wraps(function)
        def by_keywords(*arguments: _Keywords.args, **keywords: _Keywords.kwargs) -> _Result:
            __tracebackhide__ = True  # pytest shows the line of the call
            return function(family(*arguments, **keywords))

        assert isinstance(family, type)
        summary, _, rest = (function.__doc__ or "").partition("\n\n")
        helps = [f"    {each.name}: {_help(each.metadata)}" for each in declared(family)]
        by_keywords.__doc__ = "\n".join([summary, "", *helps, "", rest])
        result = inspect.signature(function).return_annotation
        signature = inspect.signature(family).replace(return_annotation=result)
        by_keywords.__signature__ = signature  # type: ignore[attr-defined]
        return by_keywords

    return declare


def _help(how: Mapping[str, Any]) -> str:
    choices = " or ".join(how.get("choices", ()))
    return f"{choices}: {how['help']}" if choices else how["help"]


@dataclass(frozen=True)
class Script:
    script: str | Path = dataclasses.field(metadata=argument("The script, which uses DataParallel."))
    _: KW_ONLY
    as_module: bool = option(
        False,
        "SCRIPT is a module, package.train, as `python -m` takes it.",
        "-m",
        typed="says what SCRIPT is",
    )


@dataclass(frozen=True, kw_only=True)
class Arguments:
    arguments: Sequence[str] = dataclasses.field(default=(), metadata=argument("The script's own arguments."))


@dataclass(frozen=True, kw_only=True)
class _Accepting:
    accept: Sequence[str] = option(
        (),
        "Answer a hazard that you have looked at: CODE:LINE, CODE:FILE:LINE, a notebook's CODE:CELL:LINE; "
        "a reason may follow a blank. May be given several times.",
        metavar="CODE:LINE",
    )

    @property
    def answers(self) -> tuple[AcceptOption, ...]:
        """The answers to hazards; OptionError for what is none."""
        from dp2ddp.codemod.plans.acceptance import accept_option

        try:
            return tuple(map(accept_option, self.accept))
        except ValueError as error:
            raise OptionError(f"--accept: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Given(Arguments, _Accepting):
    """What a conversion that is run is given."""


def refuse_no_name(output: str | Path | None) -> None:
    """OptionError for `-o ""`: an empty variable of a shell does not mean that there is no -o."""
    if output == "":
        raise OptionError("-o '': no name of a file")


Helpers = Literal["beside", "in the script", "package"]


@dataclass(frozen=True, kw_only=True)
class _Converted(Script):
    output: str | Path | None = option(
        None,
        "Where to write the result: a file that ends in .py (default: NAME_ddp.py beside SCRIPT), or - for stdout. "
        "Where local modules change too: a folder for a copy of the whole project.",
        "-o",
        "--output",
        typed="says where to write",
    )
    style: str = option(
        EXACT,
        "exact trains the same; idiomatic is what a tutorial would write, and lists what is no longer the same.",
        choices=STYLES,
    )
    select: Sequence[str] = option(
        (), "Use only these rules (codes or families: DDP5,DDP201).", codes="conversion"
    )
    ignore: Sequence[str] = option((), "Leave these rules out.", codes="conversion")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(_Accepting, _Converted):
    """What to convert, and how. Raises OptionError if two options do not go together."""

    helpers: Helpers = "beside"  # the script, in a module
    renew_helpers: bool = False  # write that module anew, whoever changed it
    progress: Progress = SILENT

    def __post_init__(self) -> None:
        _ = self.answers
        refuse_no_name(self.output)
        if self.style not in STYLES:
            raise OptionError(f"style={self.style!r}: one of {', '.join(STYLES)}")
        if self.helpers != "beside" and self.style != EXACT:
            raise OptionError(
                f"--one-file or --import is of the exact style: --style {self.style} has no helpers"
            )


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How to write a conversion."""

    in_place: bool = option(
        False, "Change SCRIPT and its local modules themselves.", typed="overwrites files"
    )
    force: bool = option(
        False,
        "Overwrite what is there already; change files in place that git does not keep.",
        typed="overwrites files",
    )


@dataclass(frozen=True)
class WriteOptions(Writing):
    """What to write, and how. Raises OptionError if two options do not go together."""

    conversion: Conversion
    output: str | Path | None = None
    _: KW_ONLY
    remark: Callable[[str], None] = SILENT.warn

    def __post_init__(self) -> None:
        if self.in_place and (self.output or not self.conversion.before.path):
            raise OptionError("--in-place writes SCRIPT itself: no -o, and no SCRIPT from stdin")


MOST_DEVICES = 1024  # a process for each: a slip of the keyboard must not start a hundred thousand
_NO_PROGRESS = "Give up after so many seconds without progress."
_VIRTUAL = "Virtual devices on the CPU, even where there are real ones."


@dataclass(frozen=True, kw_only=True)
class _Run(Script):
    mode: Literal["dp", "ddp"] = dataclasses.field(
        metadata={"help": "One process, or one for each device.", "choices": ("dp", "ddp")}
    )
    devices: int | None = option(
        None,
        "Number of devices [default: as many as device_ids names, or 2].",
        "-n",
        "--devices",
        least=1,
        most=MOST_DEVICES,
    )
    trace: Path | None = option(
        None,
        "Record every optimizer step in this folder.",
        path={"file_okay": False},
        typed="writes into a folder",
    )
    steps: int | None = option(None, "End the script after so many optimizer steps (with --trace).", least=1)
    timeout: float | None = option(None, _NO_PROGRESS)


@dataclass(frozen=True, kw_only=True)
class RunOptions(_Given, _Run):
    """What to run, and how."""

    virtual: bool = option(False, _VIRTUAL)

    def __post_init__(self) -> None:
        _ = self.answers
        if self.steps and not self.trace:
            raise OptionError("--steps needs --trace: the recorder counts the steps")


@dataclass(frozen=True, kw_only=True)
class _Versions(Script):
    converted: str | Path | None = option(
        None, "A converted version; without it SCRIPT is converted.", typed="says what is started"
    )
    converted_arguments: Sequence[str] | None = option(
        None,
        "Its arguments, where they are others: '--distributed --local_rank {local_rank}'.",
        metavar="TEXT",
        typed="is handed to what is started",
    )
    devices: int | Sequence[int] | None = option(
        None, "Numbers of devices [default: as many as device_ids names, or 2].", "-n", "--devices"
    )

    @property
    def port(self) -> Path | None:
        """The version of the user's own."""
        return None if self.converted is None else Path(self.converted)

    @property
    def worlds(self) -> tuple[int, ...]:
        """The numbers of devices, each once; none: as many as the script names, or 2."""
        numbers = (self.devices,) if isinstance(self.devices, int) else tuple(self.devices or ())
        if not all(1 <= number <= MOST_DEVICES for number in numbers):
            raise OptionError(f"devices={self.devices!r}: numbers of devices from 1 to {MOST_DEVICES}")
        return tuple(dict.fromkeys(numbers))


@dataclass(frozen=True, kw_only=True)
class _Watched:
    timeout: float = option(120.0, _NO_PROGRESS)
    launcher: str | None = option(
        None,
        "What starts the --converted version [default: python if it starts its ranks itself].",
        choices=("torchrun", "python"),
        typed="says what is started",
    )
    progress: Progress = SILENT  # who is told, from Python


@dataclass(frozen=True, kw_only=True)
class _Compared(_Versions):
    aligned: bool = option(
        False, "Give both the same batches and dropout, and judge that (with --converted)."
    )
    steps: int | None = option(None, "End both after so many optimizer steps.", least=1)
    only_gradients: bool = option(
        False, "Judge gradients and parameters; show what is printed, left behind, returned."
    )


_OF_OWN_VERSIONS = {
    "aligned": "a conversion of ours has to draw the same numbers",
    "converted_arguments": "it is that script's arguments",
    "launcher": "a conversion of ours is started by torchrun",
}


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(_Given, _Watched, _Compared):
    """What to verify, and how. Raises OptionError if two options do not go together."""

    def __post_init__(self) -> None:
        if self.converted is not None and self.accept:
            raise OptionError("--accept answers hazards of our conversion: not with --converted")
        _ = self.worlds, self.answers
        for name, reason in _OF_OWN_VERSIONS.items():
            if self.converted is None and getattr(self, name) not in (None, False):
                raise OptionError(f"--{name.replace('_', '-')} needs --converted: {reason}")


@dataclass(frozen=True, kw_only=True)
class _Timed(_Versions):
    steps: int = option(25, "End each run after so many optimizer steps.", least=2, metavar="K")
    warm_up: int = option(5, "Drop so many of them, the first ones.", least=1, metavar="K")
    rounds: int = option(2, "Time each version so many times, in turn.", least=1, metavar="R")
    compared: int = option(
        4,
        "Compare so many steps of both first, in runs of their own; 0: do not.",
        "--compare",
        least=0,
        metavar="K",
    )


@dataclass(frozen=True, kw_only=True)
class BenchOptions(_Given, _Watched, _Timed):
    """What to measure, and how. Raises OptionError if two options do not go together."""

    virtual: bool = option(False, _VIRTUAL)

    def __post_init__(self) -> None:
        _ = self.comparison
        if self.steps <= self.warm_up:
            raise OptionError(
                f"--steps {self.steps} leaves none to measure: the first {self.warm_up} are dropped (--warm-up)"
            )

    @property
    def comparison(self) -> VerifyOptions:
        """What is compared beside the speed."""
        families = (_Versions, _Watched, _Given)
        shared = {
            each.name: getattr(self, each.name) for base in families for each in dataclasses.fields(base)
        }
        return VerifyOptions(**shared, steps=self.compared or None)


@dataclass(frozen=True)
class CheckOptions:
    """What to look at, and what to do with what is found."""

    paths: str | Path | Sequence[str | Path] = dataclasses.field(
        default=".", metadata=argument("Files, folders and notebooks.")
    )
    _: KW_ONLY
    select: Sequence[str] = option((), "Report these only (codes or families: DDP6,DDP201).", codes="check")
    ignore: Sequence[str] = option((), "Leave these out.", codes="check")
    baseline: str | Path | None = option(
        None, "Report only what is not known in this file.", path={"dir_okay": False}
    )
    write_baseline: bool = option(
        False, "Keep what is found in the --baseline file, as known.", typed="overwrites a file"
    )
    text: str | None = (
        None  # what the one path has in it, instead of what lies on the disk: an editor's buffer
    )
    progress: Progress = SILENT

    @property
    def names(self) -> tuple[str, ...]:
        """The paths as text."""
        return tuple(map(str, (self.paths,) if isinstance(self.paths, str | Path) else self.paths))
