"""Many scripts that differ little, as diffs of a few that are printed whole: tests/pairs, mutations, codemod.

A file of diffs has a case behind each `+++ NAME`: what is said of it in comments (`# KEY: VALUE`), then what changes:

    --- mlp/train_ddp                    the script that this case and those behind it change, until the next such line
    +++ no momentum
    # step 1: optimizer-settings
    -optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    +optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    @@                                   another place

Lines that go or stay (`-`, or a space in front) stand together exactly once in the script: no line numbers are needed.
A case is a script, too, that others can change.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SAID = re.compile(r"# ([a-z]+(?: \d+)?): (.*)")


@dataclass(frozen=True)
class Script:
    """A script, printed or made; what is said in its first lines is no part of `body`."""

    name: str
    of: str  # the script that it changes; itself, if it is printed
    head: str
    body: str

    @property
    def said(self) -> dict[str, str]:
        return dict(SAID.findall(self.head))

    @property
    def text(self) -> str:
        return self.head + self.body


@functools.cache
def scripts(file: Path) -> dict[str, Script]:
    """The cases of a file of diffs, after the scripts that they change."""
    found = _beside(file)
    base = ""
    for part in re.split(r"^(?=--- |\+\+\+ )", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
        first, _, rest = part.rstrip("\n").partition("\n")
        mark, _, name = first.partition(" ")
        if mark == "---":
            base = name
        elif mark == "+++":
            assert name not in found, f"{file}: {name} stands there twice"
            found[name] = changed(found[base], name, rest.split("\n"))
    return found


def cases(file: Path) -> list[Script]:
    """Those that the file has itself."""
    return [script for name, script in scripts(file).items() if name not in _beside(file)]


def _beside(file: Path) -> dict[str, Script]:
    """What the cases of a file may change: `*.py` in folders beside it, and the cases of `ports.diff` there."""
    ports = file.with_name("ports.diff")
    return dict(_printed(file.parent) if file == ports or not ports.exists() else scripts(ports))


def _printed(folder: Path) -> Iterator[tuple[str, Script]]:
    for path in sorted(folder.glob("*/**/*.py")):
        name = str(path.relative_to(folder).with_suffix(""))
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        head = _length_of_head(lines)
        yield name, Script(name, name, "".join(lines[:head]), "".join(lines[head:]))


def changed(script: Script, name: str, lines: Sequence[str]) -> Script:
    """The script after the changes that these lines of a diff say, from its beginning to its end."""
    head = _length_of_head(lines)
    before = script.body.split("\n")
    after: list[str] = []
    end = 0
    for place in "\n".join(lines[head:]).split("\n@@\n"):
        old, new = (_side(place.split("\n"), other) for other in "+-")
        found = [at for at in range(len(before)) if before[at : at + len(old)] == old]
        assert len(found) == 1, f"{name}: {len(found)} times in {script.name}: {old}"
        assert found[0] >= end, f"{name}: its changes of {script.name} are not in order: {old}"
        after += before[end : found[0]] + new
        end = found[0] + len(old)
    body = "\n".join(after + before[end:])
    assert body != script.body, f"{name}: nothing changes"
    return Script(name, script.name, "".join(f"{line}\n" for line in lines[:head]), body)


def _length_of_head(lines: Sequence[str]) -> int:
    return next((i for i, line in enumerate(lines) if not SAID.match(line)), len(lines))


def _side(place: Sequence[str], other: str) -> list[str]:
    """The lines before a change (`other` is +) or after it (-); an empty line is one that stays."""
    return [line[1:] for line in place if not line.startswith(other)]
