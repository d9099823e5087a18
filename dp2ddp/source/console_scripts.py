"""Console scripts: a function of a file that a command starts, as setup.py or pyproject.toml say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILES = ("pyproject.toml", "setup.cfg", "setup.py")
# train = "package.cli:main", "train=package.cli:main"
ENTRY = re.compile(
    r"""^\s*["']?(?P<name>[\w.-]+)["']?\s*=\s*["']?(?P<module>[\w.]+):(?P<function>\w+)""", re.MULTILINE
)
IN_LIST = re.compile(r"""["'](?P<name>[\w.-]+)\s*=\s*(?P<module>[\w.]+):(?P<function>\w+)["']""")


@dataclass(frozen=True)
class ConsoleScript:
    """A command, and the function that it starts."""

    name: str
    function: str


def console_script(entry: Path) -> ConsoleScript | None:
    """The command that starts a function of a file; the nearest of the files above it that say so."""
    path = entry.resolve()
    for folder in path.parents[:6]:
        for name in FILES:
            file = folder / name
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for match in (*ENTRY.finditer(text), *IN_LIST.finditer(text)):
                if _is_of(match["module"], path, folder):
                    return ConsoleScript(match["name"], match["function"])
    return None


def _is_of(module: str, path: Path, folder: Path) -> bool:
    """Whether a module is this file, in the folder of the project or below it (src/package/cli.py)."""
    relative = path.relative_to(folder).with_suffix("").parts
    parts = tuple(module.split("."))
    return relative[-len(parts) :] == parts
