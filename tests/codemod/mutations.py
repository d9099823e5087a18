"""Python as nobody would write it: scripts of the corpus, changed at random, still (mostly) Python.

A mutation takes a script and a random generator and gives another script. Each is small, so that a failure shrinks by
leaving mutations out.
"""

from __future__ import annotations

import ast
import io
import random
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dp2ddp.source.parsing import parse_leniently

Mutation = Callable[[str, random.Random, str], str]  # script, random, another script to take pieces from

COMPOUND = (
    "if {n}:\n{body}\n",
    "if True:\n    pass\nelse:\n{body}\n",
    "for {n} in range(2):\n{body}\n",
    "while {n}:\n{body}\n    break\nelse:\n    pass\n",
    "try:\n{body}\nexcept (OSError, ValueError) as {n}:\n    raise\nfinally:\n    pass\n",
    "with torch.no_grad() as {n}, open('a') as b:\n{body}\n",
    "def {n}(a, /, b=1, *c, d, **e):\n    global g\n{body}\n",
    "@property\n@torch.no_grad()\ndef {n}(self): # why\n    '''words'''\n{body}\n",
    "async def {n}(a):\n    async with a as b, c:\n        await b\n    async for x in a:\n        yield x\n{body}\n",
    "class {n}(torch.nn.Module, metaclass=type):\n    x: int = 1\n{body}\n",
    "match {n}:\n    case [1, *rest] if rest:\n        pass\n    case {{'a': b, **more}}:\n        pass\n"
    "    case _:\n{deep}\n",
    "if __name__ == '__main__':\n{body}\n",
)
EXPRESSIONS = (
    "({0})", "(lambda: {0})()", "({n} := {0})", "[{0} for {n} in y if {n}]", "({0} if {n} else {0})", "{{**{0}}}",
    "f(*{0})", "f'{{{0}}}'", "f'''{{{0}!r:>{{10}}}}'''", "{0}\\\n  .a", "not {0}", "{0}[0]", "({0},)", "not_known({0})",
    "torch.nn.DataParallel({0})", "torch.save({0}, 'a.pt')", "open({0}, 'w')", "({0}\n # comment)\n  )", "{0}.cuda()",
    "super().__init__({0})", "(yield {0})", "-{0}", "{0} @ {0}", "getattr({0}, 'x')({0})", "{0}.module",
)  # fmt: skip
NAMES = ("x", "model", "torch", "nn", "print", "open", "self", "ddp_helpers", "ExactDDP", "GraphDDP",
         "join_process_group", "dist", "os", "DataParallel", "_", "world_size", "ﬁle", "µ", "ñame", "match", "type",
         "sum", "Any", "loader")  # fmt: skip
LINES = (
    "x = torch.nn.DataParallel(x)", "import torch", "from torch import *", "from torch.nn import DataParallel as DP",
    "torch.save(x, f'{x}.pt')", "print(x); print(y)", "x = y = z = 1", "x += 1", "del x", "assert x, y", "pass", "...",
    "from __future__ import annotations", "'''docstring'''", "with open('a', 'w') as f: f.write(x)", "x: int",
    "if (n := len(x)) > 1: print(n)", "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'", "torch.cuda.set_device(0)",
    "first, *rest = x", "x = [*a, *b]", "print(*x, **y, sep='')", "x = lambda *a, k=1: (a, k)",
    "@torch.no_grad()\ndef f(): pass",
    "for x, y in loader: loss = net(x).sum(); loss.backward(); opt.step()",
    "x = 1 if y else 2 # type: ignore", "exit()",
    "try: x = 1\nfinally: y = 2", "class A: a = 1; b = 2", "def f(): yield; return", "x = yy  # dp2ddp: ignore[DDP5]",
    "x = torch.nn.parallel.data_parallel(net, x)", "os.makedirs('a'); torch.save(1, 'b') # both",
    "import os, sys; import torch",
    "x = (\n    torch.load('a')\n)", "x.cuda(async=True)", "torch.manual_seed(random.randint(1, 10000))",
    "a = b\\\n  .c",
    "if a: os.mkdir('a')\nelif b: os.mkdir('b')\nelse: os.mkdir('c')", "with torch.cuda.device(0): x = x.cuda(0)",
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """A statement: the lines that it stands on (from 0, the last one behind), and its indentation."""

    first: int
    last: int
    indent: str
    lines: tuple[str, ...]

    @property
    def flat(self) -> str:
        """Its text without the indentation; strings of several lines keep theirs."""
        return "\n".join(one.removeprefix(self.indent) for one in self.lines)

    def indented(self, indent: str) -> list[str]:
        return [indent + one if one.strip() else one for one in self.flat.split("\n")]


def pieces(text: str) -> list[Piece]:
    """The statements that have lines of their own."""
    tree = parse_leniently(text)
    lines = text.split("\n")
    return list(_pieces(tree, lines)) if tree else []


def _pieces(tree: ast.AST, lines: list[str]) -> Iterator[Piece]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.end_lineno:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
            indent = re.match(r"[ \t\f]*", lines[first])[0]  # type: ignore[index]  # it matches always
            if len(lines[node.end_lineno - 1].encode()) <= node.end_col_offset + 20:
                yield Piece(first, node.end_lineno, indent, tuple(lines[first : node.end_lineno]))


def _pick(text: str, dice: random.Random) -> Piece | None:
    found = pieces(text)
    return dice.choice(found) if found else None


def _with(text: str, first: int, last: int, new: list[str]) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[:first], *new, *lines[last:]])


def delete(text: str, dice: random.Random, other: str) -> str:
    piece = _pick(text, dice)
    return (
        _with(text, piece.first, piece.last, [piece.indent + "pass"] * dice.randint(0, 1)) if piece else text
    )


def keep_few(text: str, dice: random.Random, other: str) -> str:
    """Half of the statements of the module are gone: small scripts are soon converted."""
    top = [one for one in pieces(text) if not one.indent]
    gone = sorted(dice.sample(top, len(top) // 2), key=lambda one: -one.first)
    for one in gone:
        text = _with(text, one.first, one.last, [])
    return text


def duplicate(text: str, dice: random.Random, other: str) -> str:
    piece = _pick(text, dice)
    return _with(text, piece.last, piece.last, list(piece.lines)) if piece else text


def swap(text: str, dice: random.Random, other: str) -> str:
    found = sorted(pieces(text), key=lambda one: one.first)
    if len(found) < 2:
        return text
    a, b = sorted(dice.sample(found, 2), key=lambda one: one.first)
    if a.last > b.first:
        return text
    text = _with(text, b.first, b.last, a.indented(b.indent))
    return _with(text, a.first, a.last, b.indented(a.indent))


def splice(text: str, dice: random.Random, other: str) -> str:
    """A statement of another script."""
    here, there = _pick(text, dice), _pick(other, dice)
    return _with(text, here.first, here.first, there.indented(here.indent)) if here and there else text


def insert_line(text: str, dice: random.Random, other: str) -> str:
    here = _pick(text, dice)
    lines = dice.choice(LINES).split("\n")
    place = here.first if here else 0
    return _with(text, place, place, [(here.indent if here else "") + one for one in lines])


def wrap(text: str, dice: random.Random, other: str) -> str:
    """A statement in a block of its own."""
    piece = _pick(text, dice)
    if not piece:
        return text
    step = dice.choice(["    ", "\t", " ", "  "])
    body = "\n".join(piece.indented(step))
    deep = "\n".join(piece.indented(" " * 8))
    block = dice.choice(COMPOUND).format(n=dice.choice(NAMES), body=body, deep=deep)
    block = block.replace("\n    ", f"\n{step}") if step != "    " and "match" not in block else block
    return _with(
        text, piece.first, piece.last, [piece.indent + one for one in block.rstrip("\n").split("\n")]
    )


def one_line(text: str, dice: random.Random, other: str) -> str:
    """`if x: a; b`, or two statements on a line."""
    found = [one for one in pieces(text) if one.last == one.first + 1]
    if not found:
        return text
    piece = dice.choice(found)
    head = dice.choice(
        ["if x: ", "for x in y: ", "while x: ", "with x: ", "class A: ", "try: ", "x = 1; ", "def f(): "]
    )
    tail = dice.choice(["", ";", "; x = 1", " ; print('a') # b", " # comment", "\nfinally: pass"])
    lines = f"{head}{piece.flat}{tail}".split("\n")
    return _with(text, piece.first, piece.last, [piece.indent + one for one in lines])


def join_lines(text: str, dice: random.Random, other: str) -> str:
    """The statement and the next one on a line."""
    piece = _pick(text, dice)
    lines = text.split("\n")
    if not piece or piece.last >= len(lines):
        return text
    return _with(
        text, piece.last - 1, piece.last + 1, [f"{lines[piece.last - 1]}; {lines[piece.last].strip()}"]
    )


def rename(text: str, dice: random.Random, other: str) -> str:
    names = sorted(set(re.findall(r"\b[^\W\d]\w*\b", text)))
    if not names:
        return text
    new = dice.choice([*NAMES, dice.choice(names)])
    return re.sub(rf"\b{re.escape(dice.choice(names))}\b", new, text)


def expression(text: str, dice: random.Random, other: str) -> str:
    """An expression inside another one, or another one in its place."""
    tree = parse_leniently(text)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.expr)] if tree else []
    found = [node for node in found if node.lineno == node.end_lineno]
    if not found:
        return text
    node = dice.choice(found)
    lines = text.split("\n")
    line = lines[node.lineno - 1].encode()
    start, end = node.col_offset, node.end_col_offset or 0
    old = line[start:end].decode(errors="replace")
    new = dice.choice(EXPRESSIONS).format(dice.choice([old, old, dice.choice(NAMES)]), n=dice.choice(NAMES))
    changed = line[:start].decode(errors="replace") + new + line[end:].decode(errors="replace")
    return _with(text, node.lineno - 1, node.lineno, changed.split("\n"))


def blanks(text: str, dice: random.Random, other: str) -> str:
    """A continued line, a comment or blanks between two tokens."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    tokens = [one for one in tokens if one.string.strip()]
    if not tokens:
        return text
    row, column = dice.choice(tokens).start
    lines = text.split("\n")
    line = lines[row - 1]
    gap = dice.choice([" \\\n", " \\\n\t ", "  ", "\t", "\n", "\n  # a comment\n", "\x0c", " # é\n"])
    return _with(text, row - 1, row, (line[:column] + gap + line[column:]).split("\n"))


def in_a_function(text: str, dice: random.Random, other: str) -> str:
    """The whole script in a function, but for its imports."""
    body = textwrap.indent(text, dice.choice(["    ", "\t", "  "]))
    return f"import torch\ndef main():\n    0\n{body}\nmain()\n".replace("    0\n", "")


def tabs(text: str, dice: random.Random, other: str) -> str:
    return re.sub(r"^( {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.MULTILINE)


def comments(text: str, dice: random.Random, other: str) -> str:
    piece = _pick(text, dice)
    if not piece:
        return text
    line = dice.choice(
        ["# é comment", "#!x", "# -*- no coding -*-", "", "\x0c", "  # less", "# dp2ddp: ignore"]
    )
    return _with(
        text, piece.first, piece.first, [dice.choice(["", piece.indent]) + line] * dice.randint(1, 3)
    )


MUTATIONS: tuple[Mutation, ...] = (
    delete, keep_few, duplicate, swap, splice, insert_line, wrap, one_line, join_lines, rename, expression, blanks,
    in_a_function, tabs, comments,
)  # fmt: skip


def mutated(text: str, other: str, changes: list[tuple[Mutation, int]], strict: bool = True) -> str:
    """The script after all changes; with `strict`, without those that would make it something else than Python."""
    for change, seed in changes:
        new = change(text, random.Random(seed), other)
        if not strict or parse_leniently(new) is not None:
            text = new
    return text


def spelled(text: str, ending: str, final: bool, head: bytes, encoding: str) -> bytes:
    """The script as a file: line endings (mixed: every third is another), a head, an encoding."""
    text = text if final else text.rstrip("\n")
    if ending == "mixed":
        parts = text.split("\n")
        ends = [("\n", "\r\n", "\r")[number % 3] for number in range(len(parts) - 1)] + [""]
        text = "".join(part + end for part, end in zip(parts, ends, strict=True))
    else:
        text = text.replace("\n", ending)
    return head + text.encode(encoding, errors="replace")
