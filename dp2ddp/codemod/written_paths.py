"""Paths that a project's text hands to what writes: a copy of the project must hold no links at those places.

Over-reported: each text in a call that may write counts, and so does what the names in the call were once given, here
or as the default of an option.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.model.nodes import last_name

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
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Assign))]
    given = _given(calls)
    texts: set[str] = set()
    for call in calls:
        if isinstance(call, ast.Call) and _writes(call):
            for node in ast.walk(call):
                texts.update(_texts(node, given))
    return frozenset(text for text in texts if text.strip("./ ") and len(text) <= _LONG)


def _writes(call: ast.Call) -> bool:
    """Whether it may; what opens a file does where its mode says so."""
    name = last_name(call.func)
    if not _OPENS.search(name):
        return bool(_WRITES.search(name))
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [text for each in arguments for text in _constant(each) if _MODE.fullmatch(text)]
    return any(set("wax+") & set(mode) for mode in modes)


def _given(nodes: Iterable[ast.Call | ast.Assign]) -> dict[str, set[str]]:
    """Name -> texts that it is given."""
    given: dict[str, set[str]] = {}
    for name, value in (pair for node in nodes for pair in _pairs(node)):
        given.setdefault(name, set()).update(text for each in ast.walk(value) for text in _constant(each))
    return given


def _pairs(node: ast.Call | ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """What names are given: by an assignment, by a keyword, as the default of an option."""
    if isinstance(node, ast.Assign):
        yield from ((last_name(target), node.value) for target in node.targets)
        return
    yield from ((keyword.arg or "", keyword.value) for keyword in node.keywords)
    if _OPTION.search(last_name(node.func)):
        options = [text for argument in node.args for text in _constant(argument)]
        defaults = (keyword.value for keyword in node.keywords if keyword.arg == "default")
        yield from ((each.lstrip("-").replace("-", "_"), value) for value in defaults for each in options)


def _texts(node: ast.AST, given: dict[str, set[str]]) -> Iterator[str]:
    yield from _constant(node)
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield from given.get(last_name(node), ())


def _constant(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
