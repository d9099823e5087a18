"""Names that only a notebook has (IPython's, Colab's, bars of widgets): what a script says in their place."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dp2ddp.source.notebook.magics import Meaning

STAND_IN = "NotebookOnly"
HOMES = ("IPython", "google.colab", "ipywidgets")
BARS = {"tqdm_notebook": "tqdm", "tnrange": "trange"}  # what tqdm calls them, and what prints to a terminal


@dataclass(frozen=True)
class NameChange:
    """A node whose text is another in a script (None: it stays), and what that means."""

    node: ast.AST
    code: str | None
    meaning: Meaning
    needs: tuple[str, ...] = ()  # of TEXTS


def changes(tree: ast.Module, bound: frozenset[str]) -> Iterator[NameChange]:
    """What has to be another in a script, statement by statement; `bound` are the names that the notebook binds."""
    tried = {inner for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if node not in tried:  # there its author has thought of its absence
                yield from _import(node)
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, node in tried)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
            yield from _name(node, node in tried)
        elif isinstance(node, ast.Expr) and ast.unparse(node) in ("exit", "quit"):
            advice = "write `raise SystemExit` to end the script"
            yield NameChange(node, None, Meaning("ends the notebook", advice=advice))


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[NameChange]:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        yield NameChange(node, "pass", Meaning("stands at the top of the script"))
    elif isinstance(node, ast.ImportFrom):
        yield from _import_from(node)
    elif all(_is_notebooks(alias.name) for alias in node.names):
        names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        yield NameChange(node, f"{' = '.join(names)} = {STAND_IN}", _SHOWN, (STAND_IN,))
    elif any(alias.name == "tqdm.notebook" for alias in node.names):
        names = [_bound(_auto(alias.name), alias.asname) for alias in node.names]
        yield NameChange(node, f"import {', '.join(names)}", _BAR)


def _import_from(node: ast.ImportFrom) -> Iterator[NameChange]:
    module = node.module or ""
    if module.partition(".")[0] == "tqdm":
        names = [_bound(BARS.get(each.name, each.name), each.asname or each.name) for each in node.names]
        if _auto(module) != module or any(alias.name in BARS for alias in node.names):
            yield NameChange(node, f"from {_auto(module)} import {', '.join(names)}", _BAR)
    elif _is_notebooks(module) or module == "google" and node.names[0].name == "colab":
        yield _shown(node)


def _shown(node: ast.ImportFrom) -> NameChange:
    """`from IPython.display import display, HTML as h`: what prints is printed, the rest does nothing."""
    parts, silent, needs = [], [], []
    for alias in node.names:
        bound = alias.asname or alias.name
        if alias.name == "get_ipython" or alias.name == "display" and node.module != "IPython":
            needs.append(alias.name)
            parts += [f"{bound} = {alias.name}"] if bound != alias.name else []
        else:
            silent.append(bound)
    if silent:
        needs.append(STAND_IN)
        parts.append(f"{' = '.join(silent)} = {STAND_IN}")
    if any(alias.name in ("userdata", "*") for alias in node.names):
        return NameChange(node, None, Meaning("brings what only a notebook has", advice=_SECRETS))
    return NameChange(node, "; ".join(parts) or "pass", _SHOWN, tuple(needs))


_SECRETS = "import by name what is shown; read what is secret from the environment (os.environ)"
_SHOWN = Meaning("only a notebook has it; `display` prints, the rest does nothing")
_BAR = Meaning("bars are drawn on the terminal")


def _attribute(node: ast.Attribute, tried: bool) -> Iterator[NameChange]:
    """`tqdm.tqdm_notebook(...)`, `tqdm.notebook.tqdm(...)`; `get_ipython().kernel`."""
    if isinstance(node.value, ast.Name) and node.value.id == "tqdm":
        if node.attr in BARS:
            yield NameChange(node, f"tqdm.{BARS[node.attr]}", _BAR)
        elif node.attr == "notebook":
            yield NameChange(node, "tqdm.auto", _BAR)
    elif isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "get_ipython" and not tried:
        advice = "take it out, or write in Python what it does"
        yield NameChange(node, None, Meaning("asks the notebook that runs it", advice=advice))


def _name(node: ast.Name, tried: bool) -> Iterator[NameChange]:
    if node.id == "display" or node.id == "get_ipython" and not tried:
        meaning = Meaning("prints" if node.id == "display" else "is None, as in any script")
        yield NameChange(node, node.id, meaning, (node.id,))


def _is_notebooks(module: str) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in HOMES)


def _auto(module: str) -> str:
    return "tqdm.auto" if module in ("tqdm.notebook", "tqdm._tqdm_notebook") else module


def _bound(name: str, to: str | None) -> str:
    """A name in an import, bound to another one if need be."""
    return name if to in (None, name) else f"{name} as {to}"


def names_of(tree: ast.Module) -> Iterator[str]:
    """The names that a cell binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]


_GET_IPYTHON = '''\
def get_ipython():
    """As IPython has it where no notebook runs."""
    return None'''

_NOTEBOOK_ONLY = '''\
class Silent(type):
    def __call__(cls, *things, **options):
        return cls

    def __add__(cls, other):
        return cls

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class NotebookOnly(metaclass=Silent):
    """Stands for what only a notebook can show: to call it, or a part of it, does nothing."""'''

_DISPLAY = '''\
def display(*things, **options):
    """What a notebook shows, a script prints."""
    for thing in things:
        if thing is not NotebookOnly:
            print(thing)'''

TEXTS = {"get_ipython": _GET_IPYTHON, "NotebookOnly": _NOTEBOOK_ONLY, "display": _DISPLAY}
_USES = {"display": ("NotebookOnly",)}


def stand_ins(names: Collection[str]) -> Iterator[str]:
    """Definitions for the top of a script that needs them, with those that they use, and empty lines between them."""
    needed = {*names, *(used for name in names for used in _USES.get(name, ()))}
    for place, name in enumerate(stand_in for stand_in in TEXTS if stand_in in needed):
        yield from ("", "") if place else ()
        yield from TEXTS[name].split("\n")
