"""As loguru 0.7 behaves: a record gets its text where a sink takes its level, and nowhere else."""

from __future__ import annotations

import itertools
import sys
from typing import Any

LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "SUCCESS": 25, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
OF_ANY = {"level", "format", "filter", "colorize", "serialize", "backtrace", "diagnose", "enqueue", "catch"}
OF_FILES = {"rotation", "retention", "compression", "delay", "watch", "mode", "buffering", "encoding"}


class Level:
    def __init__(self, name: str) -> None:
        self.name, self.no = name, LEVELS[name]


class Logger:
    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.sinks: dict[int, tuple[Any, str, int]] = {}
        self.add(sys.stderr, format="{level.name} {message}", level="DEBUG")

    def add(self, sink: Any, *, format: str = "{message}", level: str = "DEBUG", **options: Any) -> int:
        is_file = isinstance(sink, str)
        if unknown := set(options) - OF_ANY - (OF_FILES if is_file else set()):
            raise TypeError(f"add() got an unexpected keyword argument '{unknown.pop()}'")
        number = next(self.numbers)
        opened = open(sink, "a", buffering=1) if is_file else sink  # noqa: SIM115
        self.sinks[number] = (opened, format, LEVELS[level])
        return number

    def remove(self, number: Any = None) -> None:
        if number is not None and not isinstance(number, int):
            raise TypeError(f"Invalid handler id, it should be an integer, not {type(number).__name__!r}")
        if number is not None and number not in self.sinks:
            raise ValueError(f"There is no existing handler with id {number}")
        for one in [*self.sinks] if number is None else [number]:
            del self.sinks[one]

    def configure(self, *, handlers: Any = None, extra: Any = None) -> list[int]:
        if handlers is None:
            return []
        self.remove()
        return [self.add(**one) for one in handlers]

    def _log(self, level: str, message: str, *args: Any, **kwargs: Any) -> None:
        if not self.sinks or min(least for _, _, least in self.sinks.values()) > LEVELS[level]:
            return
        text = message.format(*args, **kwargs) if args or kwargs else message
        for sink, form, least in self.sinks.values():
            if least <= LEVELS[level]:
                line = form.format(level=Level(level), message=text) + "\n"
                sink(line) if callable(sink) else sink.write(line)

    def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        self._log("DEBUG", message, *args, **kwargs)

    def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        self._log("INFO", message, *args, **kwargs)

    def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        self._log("WARNING", message, *args, **kwargs)


Logger.add.__module__ = Logger.configure.__module__ = "loguru._logger"
logger = Logger()
