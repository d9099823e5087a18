"""Files of settings beside a script: what a script may look up by a name that stands in none of its own lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh", ".args", ".txt")
FOLDERS = ("config", "configs", "conf", "cfg", "cfgs", "experiments", "options", "params", "scripts", "yaml")
MOST = 400  # files; a folder of results is none of settings
LARGEST = 200_000  # bytes
# `DataParallel` as a value, with or without its module: quoted, or behind `=`, `:` or a flag.
VALUE = re.compile(
    r"""(["']) (?:[\w.]*\.)? DataParallel \1
    | (?:[:=]|--[\w-]+) \s* (?:[\w.]*\.)? DataParallel \s* (?:$|[\s,}\]#\\])""",
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True)
class SettingsMention:
    """Where a file names DataParallel as a value."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def names_data_parallel(text: str) -> int | None:
    """The line on which a text names DataParallel as a value, the first one."""
    match = VALUE.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def find_mentions(folder: Path) -> Iterator[SettingsMention]:
    """In the files of settings in a script's folder, and in the folders there that are called as such."""
    for path in sorted(_settings_files(folder))[:MOST]:
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else ""
        except (OSError, UnicodeDecodeError):
            continue
        if line := names_data_parallel(text):
            yield SettingsMention(str(path.relative_to(folder)), line)


def _settings_files(folder: Path) -> Iterator[Path]:
    patterns = ["*", *(f"{name}/{below}" for name in FOLDERS for below in ("*", "*/*"))]
    paths = (path for pattern in patterns for path in folder.glob(pattern))
    yield from (path for path in paths if path.suffix in SUFFIXES and path.is_file())
