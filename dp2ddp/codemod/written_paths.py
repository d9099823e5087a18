"""Paths that a project's text hands to what writes: a copy of the project must hold no links at those places.

Over-reported: each text in a call that may write counts, and so does what the names in the call were once given, here
or as the default of an option.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.model.nodes import inside, last_name

_WRITES = re.compile(
    r"save|dump|write|makedirs|mkdir|touch|extract|download|to_(?:csv|json|parquet|pickle|hdf)|log|handler|connect",
    re.IGNORECASE,
)
_OPENS = re.compile(r"open$|^File$|memmap$|HDFStore$")
_MODE = re.compile(r"[rwaxbt+]{1,4}")
_OPTION = re.compile(r"add_argument$|option$|field$", re.IGNORECASE)
_LONG = 200  # characters; a longer text is no path


def written_paths(trees: Iterable[ast.AST]) -> frozenset[str]:
    """Texts that may be paths of what is written, from the syntax trees of a project's files."""
    nodes = [node for tree in trees for node in inside(tree, ast.Call, ast.Assign)]
    given: dict[str, list[str]] = {}
    for name, value in (pair for node in nodes for pair in _given(node)):
        given.setdefault(name, []).extend(_texts(value))
    writing = [node for node in nodes if isinstance(node, ast.Call) and _writes(node)]
    names = {last_name(each) for call in writing for each in inside(call, ast.Name, ast.Attribute)}
    said = (_texts(call) for call in writing)
    texts = {text for each in (*said, *(given.get(name, ()) for name in names)) for text in each}
    return frozenset(text for text in texts if text.strip("./ ") and len(text) <= _LONG)


def _texts(code: ast.AST) -> list[str]:
    return [node.value for node in inside(code, ast.Constant) if isinstance(node.value, str)]


def _writes(call: ast.Call) -> bool:
    """Whether it may; what opens a file does where its mode says so."""
    name = last_name(call.func)
    if not _OPENS.search(name):
        return bool(_WRITES.search(name))
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    modes = [str(each.value) for each in arguments if isinstance(each, ast.Constant)]
    return any(_MODE.fullmatch(mode) and set("wax+") & set(mode) for mode in modes)


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names are given: by an assignment, by a keyword, as the default of an option."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((last_name(target), value) for target in targets)
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from ((keyword.arg or "", keyword.value) for keyword in keywords)
            options = [text.lstrip("-").replace("-", "_") for each in args for text in _texts(each)]
            defaults = [keyword.value for keyword in keywords if keyword.arg == "default"]
            if _OPTION.search(last_name(func)):
                yield from ((name, value) for value in defaults for name in options)
