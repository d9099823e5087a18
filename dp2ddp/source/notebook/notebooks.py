"""A notebook (.ipynb) as the script that it is: its code cells from top to bottom, with their places remembered."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError
from dp2ddp.source.files import Aside, Cell, Cells, SourceFile, dominant_newline
from dp2ddp.source.notebook.notebook_cells import Draft, draft_cell, with_names_of_scripts, words_of
from dp2ddp.source.notebook.notebook_names import names_of, stand_ins
from dp2ddp.source.parsing import LINE_END, check_as_one, count_lines, parse

MARK = "# %%"  # editors take it for the beginning of a cell
_CELL = re.compile(rf"^{MARK} (?:cell (?P<number>\d+)|\[markdown\])\r?$", re.MULTILINE)
NEEDS_AGG = re.compile(r"\b(matplotlib|pylab|seaborn|plt)\b")
PICTURE = re.compile(r"(data:[\w/+.-]+;base64,)[\w+/=]{40,}")  # inside of prose, thousands of letters
AGG = (
    'os.environ.setdefault("MPLBACKEND", "Agg")  # figures can be saved; a script opens no window that waits'
)


def read_notebook(data: bytes, path: Path) -> SourceFile:
    """The script that a notebook is; a SourceError of one line for what is no Python notebook."""
    return script_of(_load_notebook(data, path).cells, path)


def parts_of(script: str) -> dict[int, str]:
    """The text of each cell, by its number; 0 is what stands above all of them. Prose is left out."""
    marks = list(_CELL.finditer(script))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    parts = {0: script[: marks[0].start()]}
    for mark, end in zip(marks, ends, strict=True):
        if mark["number"]:
            parts[int(mark["number"])] = script[mark.start() : end]
    return parts


def _load_notebook(data: bytes, path: Path) -> Any:
    """The document in nbformat's newest form (Any: nbformat has no types)."""
    import nbformat  # half a second, for notebooks alone

    try:
        text = data.decode("utf-8-sig")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cells without ids are the business of who writes them
            document = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        _refuse_other_languages(document, path)
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not a notebook (its bytes are no UTF-8)") from error
    except SourceError:
        raise
    except Exception as error:  # nbformat lets KeyError, AttributeError and its own errors through
        raise SourceError(f"{path}: not a notebook ({_first_line(error)})") from error
    return document


def _refuse_other_languages(document: Any, path: Path) -> None:
    metadata = document.metadata
    language = metadata.get("kernelspec", {}).get("language") or metadata.get("language_info", {}).get("name")
    if language and "python" not in str(language).lower():
        raise SourceError(f"{path}: a notebook in {language}; dp2ddp converts Python")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:100]


def script_of(cells: Sequence[Any], path: Path | None) -> SourceFile:
    """The code cells as one text; every line that a cell has is one line of the script. Any: cells of nbformat."""
    name = "<notebook>" if path is None else str(path)
    code = [cell for cell in cells if _is_code(cell)]
    if not code:
        raise SourceError(f"{name}: a notebook without code")
    words = words_of(cell.source for cell in code)
    drafts = [draft_cell(cell.source, number, path, words) for number, cell in enumerate(code, 1)]
    trees = [parse(_alone(draft, path)) for draft in drafts]
    bound = frozenset(bound for tree in trees for bound in names_of(tree))
    drafts = [with_names_of_scripts(draft, tree, bound) for draft, tree in zip(drafts, trees, strict=True)]
    source = _joined(cells, drafts, path, _order_of_runs(code))
    check_as_one(source)
    return source


def _is_code(cell: Any) -> bool:
    """Whether a cell holds code, and any of it."""
    return cell.cell_type == "code" and bool(cell.source.strip())


def _alone(draft: Draft, path: Path | None) -> SourceFile:
    """A cell as a file of its own: IPython parses each for itself, so an open bracket ends with its cell."""
    lines = count_lines(draft.text) + 1
    return SourceFile(path, draft.text, cells=Cells((Cell(draft.number, 1, lines),)))


def _joined(
    cells: Sequence[Any], drafts: Sequence[Draft], path: Path | None, runs: dict[int, str]
) -> SourceFile:
    newline = dominant_newline("".join(draft.text for draft in drafts))
    text = newline.join(_head(drafts, path)) + newline
    places, asides, pending = [], [], iter(drafts)
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.strip():
            text += newline + _commented(cell.source, newline)
        if not _is_code(cell):
            continue
        draft = next(pending)
        text += f"{newline}{MARK} cell {draft.number}{newline}"
        first, body = count_lines(text) + 1, _ended(draft.text, newline)
        places.append(Cell(draft.number, first, count_lines(body)))
        if draft.number in runs:
            asides.append(Aside(first, runs[draft.number]))
        asides += [Aside(first + aside.line - 1, aside.because, aside.advice) for aside in draft.asides]
        text += body
    return SourceFile(path, text, cells=Cells(tuple(places), tuple(asides)))


def _head(drafts: Sequence[Draft], path: Path | None) -> Iterator[str]:
    """What stands above the cells: imports and names that their lines need."""
    yield f"# {path.name if path else 'a notebook'}, cell by cell"
    futures = sorted({name for draft in drafts for name in draft.futures})
    if futures:
        yield f"from __future__ import {', '.join(futures)}"
    lines = (line for draft in drafts for line in draft.text.splitlines())
    drawing = any(NEEDS_AGG.search(line) for line in lines if not line.startswith("#"))
    modules = {name for draft in drafts for name in draft.modules}
    settings = [AGG] if drawing else []
    yield from (f"import {name}" for name in sorted(modules | ({"os"} if settings else set())))
    yield from settings
    if needs := {name for draft in drafts for name in draft.needs}:
        yield from ("", f"{MARK} what a notebook has and a script does not", *stand_ins(needs))


def _commented(text: str, newline: str) -> str:
    """Prose, as editors that know cells of scripts want it."""
    text = PICTURE.sub(r"\1...", text.strip("\r\n"))
    lines = (f"# {line}".rstrip() for line in LINE_END.split(text))
    return newline.join((f"{MARK} [markdown]", *lines)) + newline


def _ended(text: str, newline: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + newline


def _order_of_runs(code: Sequence[Any]) -> dict[int, str]:
    """By number of a cell, what the numbers beside the cells say: whether they were last run from top to bottom."""
    counts: list[int | None] = [cell.get("execution_count") for cell in code]
    known = [(number, count) for number, count in enumerate(counts, 1) if count is not None]
    shown = ", ".join("not run" if count is None else str(count) for count in counts)
    late = next((number for (_, before), (number, count) in pairwise(known) if before > count), None)
    if late:
        order = "the cells were last run in another order, the script runs them from top to bottom"
        return {late: f"{order} (In [n]: {shown})"}
    if known and None in counts:
        missing = "not run when the notebook was saved, but by the script"
        return {counts.index(None) + 1: f"{missing} (In [n]: {shown})"}
    return {}
