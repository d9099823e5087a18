"""What a function that writes is given: a path, an open file (or a buffer in memory), or what cannot be told."""

from __future__ import annotations

import ast
import re
from enum import Enum

from dp2ddp.codemod.facts.script import Script, is_text

DEPTH = 6  # names for names end somewhere
MAKES_FILES = {  # what is written to is open already
    *("io.BytesIO", "io.StringIO", "builtins.open", "io.open", "codecs.open", "gzip.open", "bz2.open"),
    *("lzma.open", "os.fdopen", "tempfile.TemporaryFile", "tempfile.SpooledTemporaryFile"),
    *(
        "tempfile.NamedTemporaryFile",
        "io.TextIOWrapper",
        "io.BufferedWriter",
        "gzip.GzipFile",
        "zipfile.ZipFile",
    ),
    *("open_on_rank_zero", "sys.stdout", "sys.stderr"),
}
MAKES_PATHS = ("os.path.", "pathlib.", "os.getcwd", "os.environ", "os.getenv", "builtins.str", "os.fspath")
GIVES_PATHS = {
    "joinpath",
    "with_suffix",
    "with_name",
    "with_stem",
    "absolute",
    "resolve",
    "expanduser",
    "relative_to",
}
PATH_TYPES = re.compile(r"\b(str|Path|PathLike|PurePath)\b")
PATH_NAME = re.compile(
    r"path|file_?name|(^|_)(fname|dir|folder|directory|dest|dst|ckpt|outdir|savedir)s?($|_|\d)"
)
PATH_KEYWORD = re.compile(
    r"(f|fp|fname|file|file_?name|path\w*|fname_or_\w+|uri|im_uri|where|f_name|out\w*)$"
)
PATH_TEXT = re.compile(r"[/\\]|\.\w{1,8}$")


class Destination(Enum):
    PATH = "path"
    OPEN_FILE = "open file"
    UNKNOWN = "unknown"


def destination(script: Script, node: ast.AST | None, depth: int = DEPTH) -> Destination:
    """What an expression is, as far as the text tells."""
    if node is None or not depth:
        return Destination.UNKNOWN
    if is_text(node):
        return Destination.PATH
    match node:
        case ast.Name():
            return _destination_of_name(script, node, depth)
        case ast.Call(func=func):
            return _destination_of_call(script, node, func, depth)
        case ast.BinOp(left=left, right=right, op=ast.Div() | ast.Add()):
            sides = {destination(script, left, depth - 1), destination(script, right, depth - 1)}
            return Destination.PATH if Destination.PATH in sides else Destination.UNKNOWN
        case ast.IfExp(body=body, orelse=other):
            return _common([destination(script, node, depth - 1) for node in (body, other)])
        case ast.Attribute(attr="parent" | "stem" | "suffix"):
            return Destination.PATH
        case ast.Attribute():
            return _destination_of_attribute(script, node, depth)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return Destination.PATH if PATH_NAME.search(key.lower()) else Destination.UNKNOWN
    return Destination.UNKNOWN


def _destination_of_call(script: Script, node: ast.Call, func: ast.expr, depth: int) -> Destination:
    name = script.scopes.name(func) or ""
    if name in MAKES_FILES:
        return Destination.OPEN_FILE
    if name.startswith(MAKES_PATHS):
        return Destination.PATH
    if isinstance(func, ast.Attribute):
        if func.attr in GIVES_PATHS or func.attr in ("format", "replace") and is_text(func.value):
            return Destination.PATH
        if func.attr == "open":
            return Destination.OPEN_FILE
    return Destination.UNKNOWN


def _destination_of_name(script: Script, node: ast.Name, depth: int) -> Destination:
    """All that a name is bound to; a parameter by its type, its default, or its own name."""
    scope = script.scopes.lookup(node.id, script.scopes.scope_of[node])
    kinds = [
        destination(script, value, depth - 1)
        for value in (scope.values.get(node.id, []) if scope else [])
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None)
    ]
    kinds += [Destination.OPEN_FILE for _ in _opened_as(script, node)]
    if (
        scope
        and (said := _destination_of_parameter(script, scope.node, node.id, depth)) is not Destination.UNKNOWN
    ):
        kinds.append(said)
    common = _common(kinds)
    if (
        common is Destination.UNKNOWN
        and Destination.OPEN_FILE not in kinds
        and PATH_NAME.search(node.id.lower())
    ):
        return Destination.PATH
    return common


def _destination_of_attribute(script: Script, node: ast.Attribute, depth: int) -> Destination:
    """`self.path`, by what any of the script's objects is given under that name."""
    kinds = [
        destination(script, inner.value, depth - 1)
        for inner in script.nodes(ast.Assign)
        if isinstance(inner, ast.Assign)
        and any(isinstance(target, ast.Attribute) and target.attr == node.attr for target in inner.targets)
    ]
    common = _common(kinds)
    if (
        common is Destination.UNKNOWN
        and Destination.OPEN_FILE not in kinds
        and PATH_NAME.search(node.attr.lower())
    ):
        return Destination.PATH
    return common


def _opened_as(script: Script, node: ast.Name) -> list[ast.withitem]:
    """`with io.BytesIO() as f`, `with open(...) as f`: where the name is bound in this way."""
    function = script.scopes.function(node)
    return [
        item
        for statement in script.nodes(ast.With, ast.AsyncWith)
        for item in statement.items  # type: ignore[attr-defined]  # both have them
        if isinstance(item.optional_vars, ast.Name)
        and item.optional_vars.id == node.id
        and script.scopes.function(item.optional_vars) is function
        and destination(script, item.context_expr) is Destination.OPEN_FILE
    ]


def _destination_of_parameter(script: Script, function: ast.AST, name: str, depth: int) -> Destination:
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return Destination.UNKNOWN
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    given = zip(
        (*plain, *arguments.kwonlyargs), (*defaults, *arguments.defaults, *arguments.kw_defaults), strict=True
    )
    for argument, default in given:
        if argument.arg != name:
            continue
        if argument.annotation is not None and PATH_TYPES.search(ast.unparse(argument.annotation)):
            return Destination.PATH
        return destination(script, default, depth - 1)
    return Destination.UNKNOWN


def _common(kinds: list[Destination]) -> Destination:
    return kinds[0] if kinds and len(set(kinds)) == 1 else Destination.UNKNOWN


def destinations(script: Script, call: ast.Call) -> set[Destination]:
    """What a function that writes is given; `"PNG"` behind the first argument is no path, nor is `format="png"`."""
    kinds = {destination(script, argument) for argument in call.args[:1]}
    for given in (*call.args[1:], *call.keywords):
        value = given.value if isinstance(given, ast.keyword) else given
        kind = destination(script, value)
        named = isinstance(given, ast.keyword) and given.arg is not None and PATH_KEYWORD.match(given.arg)
        if kind is not Destination.PATH or named or has_path_looks(script, value):
            kinds.add(kind)
    return kinds


def has_path_looks(script: Script, node: ast.AST) -> bool:
    """Whether it is a path and not just any text: `f.write("epoch")` writes none."""
    if isinstance(node, ast.Constant):
        return (
            isinstance(node.value, str) and PATH_TEXT.search(node.value) is not None and " " not in node.value
        )
    if isinstance(node, ast.JoinedStr):
        return any(
            isinstance(element, ast.Constant) and has_path_looks(script, element) for element in node.values
        )
    return destination(script, node) is Destination.PATH


def is_path(script: Script, function: ast.Attribute) -> bool:
    """Whether the object of a method is a pathlib.Path, as far as the text tells."""
    owner = function.value
    if function.attr in ("rename", "replace", "open"):
        return _makes_path(script, owner)
    return not isinstance(owner, ast.Call) or _makes_path(script, owner)


def _makes_path(script: Script, node: ast.AST | None, depth: int = 5) -> bool:
    """`Path(...)`, `Path(...) / "x"`, `path.parent`, or a name for one; `x = x.parent` is not followed for ever."""
    if depth == 0:
        return False
    match script.scopes.value(node):
        case ast.Call(func=func):
            chained = isinstance(func, ast.Attribute) and _makes_path(script, func.value, depth - 1)
            return chained or (script.scopes.name(func) or "").startswith("pathlib.")
        case ast.BinOp(left=left, op=ast.Div()):
            return _makes_path(script, left, depth - 1) or isinstance(left, (ast.Name, ast.Attribute))
        case ast.Attribute(attr="parent"):
            return True
    return False
