"""One run to the outside: what is written, started or shown happens once, on rank 0, in program order."""

import atexit
import contextlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .parted import holds_rows, with_wholes
from .process import alone, exchange, own_rank, world_size
from .saving import save_completely


def on_rank_zero(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on rank 0 only; every rank gets its result, or its exception.

    Rank 0 starts when all ranks have come here, and they go on when it is done: whatever is read before or
    after (a file, its existence) is the same on every rank. Results that cannot be sent (open files, figures)
    are a NullObject on the other ranks.
    """
    if world_size() == 1:
        return function(*args, **kwargs)
    exchange(None)
    args, kwargs = with_wholes((args, kwargs))
    result, error = attempt(lambda: function(*args, **kwargs)) if own_rank() == 0 else (None, None)
    sent_result, sent_error = exchange((sendable(result), sendable(error)) if own_rank() == 0 else None)[0]
    if sent_error is not None:
        raise error or as_exception(sent_error)
    if getattr(function, "__module__", None) == "logging.config":
        copy_logging_setup()
    return result if own_rank() == 0 else sent_result


def copy_logging_setup() -> None:
    """Rank 0 has set up its loggers: let those of the other ranks make the same records, which go nowhere."""
    manager = logging.Logger.manager
    loggers = [
        logging.root,
        *(logger for logger in manager.loggerDict.values() if isinstance(logger, logging.Logger)),
    ]
    settings = exchange(
        [(logger.name, logger.level, logger.disabled, logger.propagate) for logger in loggers]
    )[0]
    if own_rank() > 0:
        for name, level, disabled, propagate in settings:
            logger = logging.getLogger(None if name == "root" else name)
            logger.setLevel(level)
            logger.disabled, logger.propagate = disabled, propagate
    format_records_at_once()


def format_records_at_once() -> None:
    """Let the text of a log record be made when the record is: on all ranks, since only rank 0 has the log file.

    A large output is written out by all ranks together. Records of texts and numbers are as they ever were.
    """
    make: Any = logging.getLogRecordFactory()
    if getattr(make, "formats", False):
        return

    def make_and_format(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = make(*args, **kwargs)
        if not is_plain_in_log(record.msg) or not is_plain_in_log(record.args):
            with contextlib.suppress(
                Exception
            ):  # the handler meets it again, and logging has its way with it
                record.msg, record.args = record.getMessage(), None
        return record

    vars(make_and_format)["formats"] = True
    logging.setLogRecordFactory(make_and_format)


def is_plain_in_log(value: Any) -> bool:
    """Whether a rank alone can make a text of it: of texts, numbers, and none."""
    values = value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,)
    return all(isinstance(value, (str, bytes, int, float, complex, type(None))) for value in values)


def write_on_rank_zero(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that writes to a path or to an open file. An open file is the rank's own: each writes to it."""
    given = (*args, *kwargs.values())
    if all(
        exchange(
            any(hasattr(argument, "write") and not isinstance(argument, NullObject) for argument in given)
        )
    ):
        return function(*args, **kwargs)
    return on_rank_zero(function, *args, **kwargs)


def attempt(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a function gives, or raises, on one rank, which is alone meanwhile."""
    try:
        with alone():
            return function(), None
    except (Exception, SystemExit) as raised:
        return None, raised


def sendable(value: Any) -> Any:
    """The value if it comes back whole from pickle, a NullObject that knows its text if not."""
    if is_sendable(value) and not (isinstance(value, BaseException) and pickles_to_other_text(value)):
        return value
    if isinstance(value, BaseException) and is_sendable((type(value), value.args)):
        return type(value), value.args
    return NullObject(text=f"{type(value).__name__}: {value}")


def pickles_to_other_text(error: BaseException) -> bool:
    """Whether pickle makes another text of it: its __init__ is called with the text that it made itself."""
    return str(pickle.loads(pickle.dumps(error))) != str(error)


def is_sendable(value: Any) -> bool:
    """Whether it comes back whole from pickle."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def as_exception(error: Any) -> BaseException:
    """An exception of rank 0 as another rank can raise it: not made anew, since its __init__ may want other things."""
    if isinstance(error, BaseException):
        return error
    if isinstance(error, NullObject):
        return RuntimeError(f"on rank 0: {error.text}")
    kind, arguments = error
    raised: BaseException = kind.__new__(kind, *arguments)
    return raised


class NullObject:
    """Stands on ranks > 0 for an object that only rank 0 has (a log writer): takes every call, does nothing.

    It has the plain attributes (names, folders, numbers) that rank 0's object had when it was made.
    """

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> "NullObject":
        refuse_rows((args, kwargs))
        return self

    def __enter__(self) -> "NullObject":
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, key: Any) -> "NullObject":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        refuse_rows(value)

    def __le__(self, other: Any) -> bool:  # logging asks every handler: record.levelno >= handler.level
        return False

    def __str__(self) -> str:
        return ""


def refuse_rows(value: Any) -> None:
    """Rank 0 would wait for ever for the rows of the other ranks, which have nothing to give them to."""
    if holds_rows(value):
        raise TypeError(
            "A large output of the wrapped model is handed to an object that rank 0 alone has, and each rank holds "
            "some of its rows. Hand over x.detach().cpu().numpy(), which is the whole."
        )


def object_on_rank_zero(factory: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make an object (a SummaryWriter, a log file's handler) on rank 0; the other ranks get a NullObject."""
    if (getattr(factory, "__module__", None) or "").startswith("loguru."):
        return sinks_on_rank_zero(factory, *args, **kwargs)
    made: list[Any] = []
    if isinstance(factory, type) and issubclass(factory, logging.Handler):
        format_records_at_once()

    def make() -> dict[str, Any]:
        made.append(factory(*args, **kwargs))
        return plain_attributes(made[0])

    facts = on_rank_zero(make)
    return made[0] if made else NullObject(**facts)


# What loguru's logger.add takes for whatever sink, and by which it makes the text of a record.
SINK_OPTIONS = ("level", "format", "filter", "colorize", "serialize", "backtrace", "diagnose", "catch")


def sinks_on_rank_zero(set_up: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """loguru's logger.add or logger.configure: rank 0 has the sinks, the others have as many that go nowhere.

    loguru makes the text of a record only where a sink takes it, and all ranks must make it: a large output is
    written out by all of them together. Returns the numbers of the rank's own sinks, as loguru does.
    """
    made: list[Any] = []
    on_rank_zero(lambda: made.append(set_up(*args, **kwargs)))
    if made:
        return made[0]
    if "handlers" in kwargs:
        return set_up(**{**kwargs, "handlers": [null_sink(handler) for handler in kwargs["handlers"] or ()]})
    return set_up(**null_sink(kwargs)) if set_up.__name__ == "add" else set_up(*args, **kwargs)


def null_sink(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a sink of loguru that makes the same texts, and does nothing with them."""
    return {
        "sink": ignore_message,
        **{name: value for name, value in options.items() if name in SINK_OPTIONS},
    }


def ignore_message(message: Any) -> None:
    """A sink of loguru."""


def plain_attributes(thing: Any) -> dict[str, Any]:
    """The public attributes of an object that are texts, numbers, or nothing."""
    attributes = getattr(thing, "__dict__", {})
    plain = (str, int, float, bool, type(None))
    return {name: value for name, value in attributes.items() if name[0] != "_" and isinstance(value, plain)}


def open_on_rank_zero(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    """The built-in open, for files that all ranks write alike: rank 0 writes, the others to os.devnull.

    Where they may read what they write ("a+", "r+"), the others have a copy of their own. Reading only, every
    rank opens the file itself, after rank 0 has come here too. close() and the end of a with block wait for
    rank 0, so that the file is complete for every rank afterwards.
    """
    if world_size() == 1:
        return open(file, mode, *args, **kwargs)
    if not set(mode) & set("wax+"):
        exchange(None)
        return open(file, mode, *args, **kwargs)
    opened: list[Any] = []
    copy = nameless_copy(file) if "+" in mode and own_rank() > 0 else None
    on_rank_zero(lambda: opened.append(open(file, mode, *args, **kwargs)))  # noqa: SIM115
    if not opened:
        instead = f"/dev/fd/{copy.fileno()}" if copy else os.devnull
        opened.append(open(instead, mode.replace("x", "w"), *args, **kwargs))  # noqa: SIM115
    atexit.register(flush_if_open, weakref.ref(opened[0]))
    return WrittenOnRankZero(opened[0])


def nameless_copy(file: Any) -> Any:
    """A file without a name that holds what this one holds now, nothing if there is none."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    if os.path.isfile(file) and os.access(file, os.R_OK):
        with open(file, "rb") as source:
            shutil.copyfileobj(source, copy)
        copy.flush()
    return copy


def flush_if_open(file: "weakref.ref[Any]") -> None:
    """Write out what a script left in a file that it never closed.

    The interpreter would do it if it freed the script's objects at its end. But torch keeps autograd functions
    for ever, and with them everything in the file that defines them.
    """
    opened = file()
    if opened is not None and not opened.closed:
        opened.flush()


class WrittenOnRankZero:
    """An open file whose close() is over on every rank when it is over on rank 0.

    Rank 0 alone meets a full disk. In a `with` block it goes on, as the others do, and all raise the error at its end.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self.empty: Any = None
        self.in_block = False
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["file"], name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.file)

    def write(self, content: Any) -> int:
        try:
            return int(self.file.write(content))
        except OSError as error:
            self.keep_in_block(error)
        return len(content)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self.file.flush()
        except OSError as error:
            self.keep_in_block(error)

    def keep_in_block(self, error: OSError) -> None:
        if not self.in_block:
            raise error
        if self.error is None:
            print(
                f"{error}: this is raised when the block ends that writes {self.file.name}", file=sys.stderr
            )
            self.error = error

    def fileno(self) -> int:
        """On ranks > 0 that of an empty file: os.fsync() refuses the null device."""
        if self.file.name == os.devnull:
            self.empty = self.empty or tempfile.TemporaryFile()  # noqa: SIM115
            return self.empty.fileno()
        return int(self.file.fileno())

    def close(self) -> None:
        if not self.file.closed:
            self.finish(self.file.close)

    def finish(self, work: Callable[[], None]) -> None:
        """Do this on all ranks; an error of one of them is raised on all."""
        try:
            work()
        except OSError as error:
            self.error = self.error or error
        errors = [error for error in exchange(sendable(self.error)) if error is not None]
        if errors:
            raise self.error or as_exception(errors[0])

    def __enter__(self) -> "WrittenOnRankZero":
        self.in_block = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(OSError):  # the other ranks may not come here, and have no full disk
                self.file.close()


def save_on_rank_zero(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save, once; an interrupted run leaves the old file.

    If f is an open file, it is the rank's own, and every rank writes to it.
    """
    if hasattr(f, "write"):
        torch.save(obj, f, *args, **kwargs)
    else:
        on_rank_zero(save_completely, obj, f, *args, **kwargs)
