"""A notebook whose cells write the converted script, part by part, and start it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dp2ddp.source.notebook.notebook_cells import SET_ASIDE
from dp2ddp.source.notebook.notebooks import MARK, is_code, load_notebook

_MARK = re.compile(rf"^{MARK} (?:cell (?P<number>\d+)|\[markdown\])\r?$", re.MULTILINE)
_COMMENT = re.compile(r"\s*(#.*)?")
FOLDED = {"jupyter": {"source_hidden": True}}  # Jupyter shows such a cell as one line


def launching_notebook(
    data: bytes, path: Path, script: str, name: str, launch: str, helpers: Mapping[str, str]
) -> bytes:
    """The notebook in `data` (from `path`) with cells that write `script` to the file `name`, and launch it.

    What the script sets aside stays a cell of the notebook. `helpers` are further files that it needs, folded.
    """
    import nbformat

    document = load_notebook(data, path)
    parts = parts_of(script)
    numbers = [number for number in parts if number]
    written = iter(range(len(parts) * 3))
    cells = [_code(f"%%writefile {file}\n{text.rstrip()}", FOLDED) for file, text in helpers.items()]
    cells += _cells(document, parts, name, written)
    cells.append(_code(_launch_cell(name, numbers, launch)))
    for place, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{place}"
    document.cells, document.nbformat, document.nbformat_minor = cells, 4, 5
    document.metadata.pop("widgets", None)
    nbformat.validate(document)
    text: str = nbformat.writes(document)  # type: ignore[no-untyped-call]
    return (text + "\n").encode()


def parts_of(script: str) -> dict[int, str]:
    """The text of each cell, by its number; 0 is what stands above all of them. Prose is left out."""
    marks = list(_MARK.finditer(script))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    parts = {0: script[: marks[0].start()]}
    for mark, end in zip(marks, ends, strict=True):
        if mark["number"]:
            parts[int(mark["number"])] = script[mark.start() : end]
    return parts


def _cells(document: Any, parts: dict[int, str], name: str, written: Iterator[int]) -> Iterator[Any]:
    yield from _writing(parts[0], name, written)
    number = 0
    for cell in document.cells:
        if not is_code(cell):
            if cell.cell_type != "code":
                yield cell
            continue
        number += 1
        part = parts[number]
        aside = [line.removeprefix(SET_ASIDE) for line in part.splitlines() if line.startswith(SET_ASIDE)]
        if all(_COMMENT.fullmatch(line) for line in part.splitlines()) and aside:
            yield _code(cell.source)  # nothing of it is in the script
            part = f"{MARK} cell {number}\n"
        elif lines := [line for line in aside if not line.startswith("%%")]:
            yield _code("\n".join(lines))
        yield from _writing(part, name, written)


def _writing(text: str, name: str, written: Iterator[int]) -> Iterator[Any]:
    """A cell that writes a part of the script."""
    if text.strip():
        append, gap = ("-a ", "\n") if next(written) else ("", "")
        file = name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"'  # a magic takes quotes off
        yield _code(f"%%writefile {append}{file}\n{gap}{text.strip(chr(10))}")


def _launch_cell(name: str, numbers: list[int], launch: str) -> str:
    """Starts the ranks with the notebook's own Python: the first torchrun on PATH may be another environment's.

    `|| exit 1` leaves a shell between IPython and torchrun: when the kernel is interrupted, IPython kills what it has
    started, and torchrun would not come to end its ranks; and a process that takes long to end counts as exit code 0.
    """
    marks = ", ".join(f'"{number}"' for number in numbers)
    return "\n".join(
        (
            "# each cell above writes its part of the script: once, in order, or else run all of them again",
            "import re, shlex, sys",
            f"script = {json.dumps(name)}",
            f'marks = re.findall(r"^{MARK} cell (\\d+)$", open(script, encoding="utf-8").read(), re.MULTILINE)',
            f'assert marks == [{marks}], "run all cells again, from the top"',
            f"!{_by_own_python(launch, name)} || exit 1",
            'assert _exit_code == 0, "the training failed or was interrupted, see above"',
        )
    )


def _by_own_python(launch: str, name: str) -> str:
    """The launch line behind `!`, where IPython puts expressions in the place of {...} and $..."""
    if re.search(r"[${}]", name):
        launch = launch.removesuffix(shlex.quote(name)) + "{shlex.quote(script)}"
    return re.sub(r"(^| )torchrun ", r'\1"{sys.executable}" -m torch.distributed.run ', launch, count=1)


def _code(source: str, metadata: dict[str, Any] | None = None) -> Any:
    from nbformat.v4 import new_code_cell

    return new_code_cell(source, metadata=metadata or {})  # type: ignore[no-untyped-call]
