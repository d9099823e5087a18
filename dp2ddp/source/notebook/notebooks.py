"""A notebook (.ipynb) as the script that it is: its code cells from top to bottom, with their places remembered."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError
from dp2ddp.source.cells import Aside, Cell, Cells
from dp2ddp.source.files import SourceFile, dominant_newline
from dp2ddp.source.notebook.notebook_cells import Draft, draft_cell, with_names_of_scripts, words_of
from dp2ddp.source.notebook.notebook_names import names_of
from dp2ddp.source.notebook.stand_ins import texts_of
from dp2ddp.source.parsing import LINE_END, check_as_one, count_lines, parse

MARK = "# %%"  # editors take it for the beginning of a cell
NEEDS_AGG = re.compile(r"\b(matplotlib|pylab|seaborn|plt)\b")
PICTURE = re.compile(r"(data:[\w/+.-]+;base64,)[\w+/=]{40,}")  # inside of prose, thousands of letters
AGG = (
    'os.environ.setdefault("MPLBACKEND", "Agg")  # figures can be saved; a script opens no window that waits'
)


@dataclass(frozen=True)
class RawCell:
    """A cell as it stands in the file."""

    kind: str  # code, markdown, raw
    text: str
    count: int | None = None  # of its last execution


def read_notebook(data: bytes, path: Path) -> SourceFile:
    """The script that a notebook is; a SourceError of one line for what is no Python notebook."""
    document = load_notebook(data, path)
    return script_of(cells_of(document), path)


def load_notebook(data: bytes, path: Path) -> Any:
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


def cells_of(document: Any) -> list[RawCell]:
    """The cells of a notebook that nbformat has read."""
    return [raw_cell(cell) for cell in document.cells]


def raw_cell(cell: Any) -> RawCell:
    """A cell as nbformat has it, as plain data."""
    return RawCell(str(cell.cell_type), str(cell.source), cell.get("execution_count"))


def script_of(cells: Sequence[RawCell], path: Path | None) -> SourceFile:
    """The code cells as one text; every line that a cell has is one line of the script."""
    name = "<notebook>" if path is None else str(path)
    code = [cell for cell in cells if is_code(cell)]
    if not code:
        raise SourceError(f"{name}: a notebook without code")
    words = words_of(cell.text for cell in code)
    drafts = [draft_cell(cell.text, number, path, words) for number, cell in enumerate(code, 1)]
    trees = [parse(_alone(draft, path)) for draft in drafts]
    bound = frozenset(bound for tree in trees for bound in names_of(tree))
    drafts = [with_names_of_scripts(draft, tree, bound) for draft, tree in zip(drafts, trees, strict=True)]
    source = _joined(cells, drafts, path, _order_of_runs(code))
    check_as_one(source)
    return source


def is_code(cell: RawCell) -> bool:
    """Whether a cell holds code, and any of it."""
    return cell.kind == "code" and bool(cell.text.strip())


def _alone(draft: Draft, path: Path | None) -> SourceFile:
    """A cell as a file of its own: IPython parses each for itself, so an open bracket ends with its cell."""
    lines = count_lines(draft.text) + 1
    return SourceFile(path, draft.text, cells=Cells((Cell(draft.number, 1, lines),)))


def _joined(
    cells: Sequence[RawCell], drafts: Sequence[Draft], path: Path | None, runs: dict[int, str]
) -> SourceFile:
    newline = dominant_newline("".join(draft.text for draft in drafts))
    text = newline.join(_head(drafts, path)) + newline
    places, asides, pending = [], [], iter(drafts)
    for cell in cells:
        if cell.kind == "markdown" and cell.text.strip():
            text += newline + _commented(cell.text, newline)
        if not is_code(cell):
            continue
        draft = next(pending)
        text += f"{newline}{MARK} cell {draft.number}{newline}"
        first, body = count_lines(text) + 1, _ended(draft.text, newline)
        places.append(Cell(draft.number, first, count_lines(body)))
        if draft.number in runs:
            asides.append(Aside(first, runs[draft.number]))
        asides += [Aside(first + aside.line - 1, aside.because, aside.advice) for aside in draft.asides]
        text += body
    return SourceFile(path, text, newline=newline, cells=Cells(tuple(places), tuple(asides)))


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
        yield from ("", f"{MARK} what a notebook has and a script does not", *texts_of(needs))


def _commented(text: str, newline: str) -> str:
    """Prose, as editors that know cells of scripts want it."""
    text = PICTURE.sub(r"\1...", text.strip("\r\n"))
    lines = (f"# {line}".rstrip() for line in LINE_END.split(text))
    return newline.join((f"{MARK} [markdown]", *lines)) + newline


def _ended(text: str, newline: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + newline


def _order_of_runs(code: Sequence[RawCell]) -> dict[int, str]:
    """By number of a cell, what the numbers beside the cells say: whether they were last run from top to bottom."""
    counts = [cell.count for cell in code]
    known = [count for count in counts if count is not None]
    counts_text = ", ".join("not run" if count is None else str(count) for count in counts)
    if known != sorted(known):
        late = next(
            place
            for place, count in enumerate(counts)
            if count is not None and any(other is not None and other > count for other in counts[:place])
        )
        order = "the cells were last run in another order, the script runs them from top to bottom"
        return {late + 1: f"{order} (In [n]: {counts_text})"}
    if known and None in counts:
        return {
            counts.index(None)
            + 1: f"not run when the notebook was saved, but by the script (In [n]: {counts_text})"
        }
    return {}
