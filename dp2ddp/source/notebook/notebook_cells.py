"""One cell of a notebook as lines of a script: as many lines, and what is no Python in a comment."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.source.files import Aside
from dp2ddp.source.notebook.magics import AUTOMAGIC, Meaning, assigned, cell_magic, line_magic, shell
from dp2ddp.source.notebook.notebook_names import NameChange, changes
from dp2ddp.source.parsing import count_lines, place_in

SET_ASIDE = "# set aside: "
ABOVE = "# above: "  # what such a line brings stands at the top of the script
MODULES = ("os", "subprocess", "sys")  # that replaced lines may use

_LINE_ENDING = re.compile(r"(\r\n|\r|\n)")
_ESCAPE = re.compile(r"(?P<indent>[ \t]*)(?P<escape>%%?|!!?|\?\??)\s*(?P<rest>\S.*|)", re.DOTALL)
_ASSIGNED = re.compile(r"(?P<indent>[ \t]*)(?P<target>[^=!%#'\"()\r\n]+?)\s*=\s*(?P<magic>[%!].*)", re.DOTALL)
_HELP = re.compile(r"[^#'\"\r\n]*\?{1,2}\s*", re.DOTALL)
_CELL_MAGIC = re.compile(r"(?P<blank>\s*)(?P<first>%%(?P<name>!|\S+)[ \t]*(?P<rest>[^\r\n]*)(?:\r\n|\r|\n)?)")


@dataclass(frozen=True)
class Draft:
    """A cell on its way into the script."""

    number: int
    text: str  # as many lines as the cell has
    asides: tuple[Aside, ...] = ()  # by lines of the cell
    modules: frozenset[str] = frozenset()  # that its lines use
    needs: frozenset[str] = frozenset()  # of notebook_names.py
    futures: frozenset[str] = frozenset()


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The words of a notebook's Python lines."""
    lines = (line for text in texts for line in text.splitlines())
    lines = (line for line in lines if not re.match(r"\s*[%!]", line) and not AUTOMAGIC.match(line.strip()))
    return frozenset(word for line in lines for word in re.findall(r"\w+", line))


def draft_cell(text: str, number: int, path: Path | None, words: Collection[str]) -> Draft:
    """The cell without what only IPython understands."""
    text = textwrap.dedent(text) if text[:1] in " \t" else text  # as IPython takes it
    drafted, asides, code = "", [], ""
    for part, meaning in _parts(text, path, words):
        if meaning is not None:
            shown, *_ = part.strip().splitlines()
            line = count_lines(drafted) + 1
            asides.append(Aside(line, meaning_text(shown, meaning), meaning.advice))
            code += meaning.code or ""
        drafted += part if meaning is None else _instead(part, meaning)
    return Draft(number, drafted, tuple(asides), frozenset(name for name in MODULES if f"{name}." in code))


def _parts(text: str, path: Path | None, words: Collection[str]) -> Iterator[tuple[str, Meaning | None]]:
    """The text as it stands in the script, but for what has a meaning: that is no Python."""
    head = _CELL_MAGIC.match(text)
    if head is None:
        yield from ((statement, meaning_of(statement, words)) for statement in statements(text))
        return
    name, rest, body, stays = head["name"], head["rest"].strip(), text[head.end() :], False
    if name in ("writefile", "file"):
        meaning = written(rest, body, path)
    else:
        meaning, stays = cell_magic(name, rest, body, words)
    yield from ((head["blank"], None), (head["first"], meaning))
    yield from _parts(body, path, words) if stays else ((_commented(body), None),)


def _instead(text: str, meaning: Meaning) -> str:
    """What stands in the place of a line that only a notebook can run: Python, or a comment."""
    indent = text[: len(text) - len(text.lstrip(" \t"))]
    if meaning.code is None or "\n" in meaning.code:
        return _commented(text, indent)
    first, *endings = _LINE_ENDING.split(text, maxsplit=1)
    ending, rest = endings or ("", "")
    return f"{indent}{meaning.code}  # {first.strip()}{ending}{_commented(rest)}"


def _commented(text: str, indent: str = "") -> str:
    """Every line as a comment; inside of a block `pass` keeps its place."""
    start = f"{indent}pass  {SET_ASIDE}" if indent else SET_ASIDE
    lines = (((start + line.strip(" \t") if line.strip() else line), ending) for line, ending in _lines(text))
    return "".join(map("".join, lines))


def meaning_text(line: str, meaning: Meaning, becomes: str = "is set aside") -> str:
    """What became of a line, and why, in a sentence."""
    shown = f"`{line if len(line) <= 60 else line[:57] + '...'}`"
    if meaning.advice:
        return f"{shown} {meaning.because}"
    return f"{shown} {becomes if meaning.code is None else 'is Python now'}: {meaning.because}"


def is_special(line: str) -> bool:
    """Whether a line is a statement of IPython's, which is no Python, to its end."""
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return False
    whole = any(kind.fullmatch(stripped) for kind in (_ESCAPE, _ASSIGNED, _HELP))
    return whole or AUTOMAGIC.match(stripped) is not None


_TOKEN = re.compile(
    r"""
      (?P<text>  (?P<quotes>\"{3}|'{3}) (?:\\.|(?!(?P=quotes)).)* (?:(?P=quotes)|\Z)
              |  "(?:\\(?:\r\n|.)|[^"\\\r\n])*"?
              |  '(?:\\(?:\r\n|.)|[^'\\\r\n])*'?
              |  \#[^\r\n]*
              |  \\(?:\r\n|\r|\n) )
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<end>\r\n|\r|\n)
    """,
    re.VERBOSE | re.DOTALL,
)
# with a backslash at its end it goes on
_LINE = re.compile(r"(?:\\(?:\r\n|\r|\n)|[^\r\n])*(?:\r\n|\r|\n|\Z)")


def statements(text: str) -> Iterator[str]:
    """The statements of a text, and its empty lines, with their endings; found without a parser.

    A line that is no Python is one for itself, where a statement begins.
    """
    at = 0
    while at < len(text):
        match = _LINE.match(text, at)
        assert match
        end = match.end() if is_special(match[0]) else _end_of_statement(text, at)
        yield text[at:end]
        at = end


def _end_of_statement(text: str, at: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth = max(depth - 1, 0)
        elif token["end"] and depth == 0:
            return token.end()
    return len(text)


def meaning_of(text: str, words: Collection[str]) -> Meaning | None:
    """What a statement that only IPython understands means; None for Python."""
    text = re.sub(r"\\\r?\n", " ", text.strip())
    if not is_special(text):
        return None
    if match := _ESCAPE.fullmatch(text):
        return _escaped(match["escape"], match["rest"], words)
    if match := _ASSIGNED.fullmatch(text):
        return assigned(match["target"].strip(), match["magic"], words)
    if _HELP.fullmatch(text):
        return _escaped("?", text, words)
    name, _, rest = text.partition(" ")
    if name in words and name not in ("pip", "conda"):
        return None  # a name of the notebook's own
    return line_magic(name, rest.strip(), words)


def _escaped(escape: str, rest: str, words: Collection[str]) -> Meaning:
    if escape.startswith("!"):
        return shell(rest, words)
    if escape.startswith("?") or rest.endswith("?"):
        return Meaning("it shows help")
    name, _, rest = rest.partition(" ")
    return line_magic(name, rest.strip(), words)


def written(rest: str, body: str, path: Path | None) -> Meaning:
    """`%%writefile helper.py`: set aside where that file is there, as the cell writes it."""
    name = rest.strip().strip("\"'")
    file = path.parent / name if path and name and not name.startswith("-") else None
    text = body if body.endswith("\n") else body + "\n"
    try:
        if file and file.read_text(encoding="utf-8").rstrip("\n") == text.rstrip("\n"):
            return Meaning(f"{name} is there, as this cell writes it")
    except (OSError, UnicodeDecodeError):
        pass
    advice = "run this cell once before the conversion, so that the file is there, or write it in Python"
    return Meaning("writes a file that is not there as the cell has it", advice=advice)


def with_names_of_scripts(draft: Draft, tree: ast.Module, bound: frozenset[str]) -> Draft:
    """The cell without names that only a notebook has."""
    found_changes = sorted(changes(tree, bound), key=lambda change: _start(change.node), reverse=True)
    text = draft.text
    for change in found_changes:
        text = _changed(text, change)
    asides = (
        _aside(draft.text, change)
        for change in reversed(found_changes)
        if change.meaning.advice or not (_is_future(change) or isinstance(change.node, ast.Name))
    )
    return replace(
        draft,
        text=text,
        asides=tuple(sorted({*draft.asides, *asides}, key=lambda aside: aside.line)),
        needs=draft.needs | {name for change in found_changes for name in change.needs},
        futures=frozenset(
            alias.name
            for change in found_changes
            if _is_future(change)
            for alias in change.node.names  # type: ignore[attr-defined]
        ),
    )


def _aside(text: str, change: NameChange) -> Aside:
    line = _start(change.node)[0]
    shown = _LINE_ENDING.split(text)[::2][line - 1].strip()
    meaning = change.meaning
    return Aside(line, meaning_text(shown, meaning, "is another line in a script"), meaning.advice)


def _is_future(change: NameChange) -> bool:
    return isinstance(change.node, ast.ImportFrom) and change.node.module == "__future__"


def _start(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.comprehension):
        node = node.iter
    return node.lineno, node.col_offset  # type: ignore[attr-defined]  # every node that is handed in has them


def _changed(text: str, change: NameChange) -> str:
    """The text with a node replaced; the number of its lines stays."""
    node, code = change.node, change.code
    if code is None:
        return text
    start, end = place_in(text, *_start(node)), place_in(text, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    before, inside, after = text[:start], text[start:end], text[end:]
    alone = (not before or before.endswith(("\n", "\r"))) and re.match(r"[ \t]*([\r\n#]|\Z)", after)
    if code == "pass" and alone:
        return before + "".join(f"{ABOVE}{line.strip()}{ending}" for line, ending in _lines(inside)) + after
    return before + code + "".join(_LINE_ENDING.findall(inside)) + after


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line and its ending."""
    parts = _LINE_ENDING.split(text)
    yield from zip(parts[::2], [*parts[1::2], ""], strict=True)
