"""DataParallel, fetched by its name: `getattr(nn, config["parallel"])`, `vars(nn)[name]`, `eval("nn.DataParallel")`.

Where the name is written there, it is the class. Elsewhere it may be, if the project's own texts or its files of
settings name DataParallel as a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.source.settings_files import names_data_parallel

HOMES = ("torch.nn", "torch.nn.parallel", "torch.nn.parallel.data_parallel")
CLASS = "DataParallel"
PATHS = re.compile(r"(torch\.)?(nn\.)?(parallel\.)?(data_parallel\.)?DataParallel")
FINDERS = {  # what finds a class by its whole name, of any module
    *("pydoc.locate", "hydra.utils.instantiate", "hydra.utils.get_class", "hydra.utils.get_object"),
    *("hydra.utils.get_method", "hydra.utils.call", "builtins.eval"),
}
RUNS_TEXT = ("builtins.eval", "builtins.exec")


@dataclass(frozen=True)
class Lookup:
    """An expression that may be DataParallel."""

    node: ast.expr
    because: str


def named_lookups(script: Script) -> Iterator[ast.expr]:
    """Expressions that are the class, by a name that is written there."""
    for node in script.nodes(ast.Call, ast.Subscript, ast.Attribute):
        assert isinstance(node, (ast.Call, ast.Subscript, ast.Attribute))
        if isinstance(node.ctx if not isinstance(node, ast.Call) else ast.Load(), ast.Load):
            name = _lookup(script, node)
            if name and _text(script, name) == CLASS or _is_whole_path(script, node):
                yield node


def lookups(script: Script, modules: Modules) -> Iterator[Lookup]:
    """Expressions that may be the class, by a name that stands elsewhere."""
    seen: str | None = None
    for node in script.nodes(ast.Call, ast.Subscript):
        assert isinstance(node, (ast.Call, ast.Subscript))
        if text := _run_text(script, node):
            yield Lookup(node, f"runs a text that names DataParallel ({text})")
        elif (name := _lookup(script, node) or _any_class(script, node)) and _text(script, name) is None:
            seen = seen if seen is not None else _first_mention(modules)
            if seen:
                code = ast.unparse(name)
                yield Lookup(
                    node,
                    f"may be DataParallel, which is looked up by its name: `{code}`, and {seen} names it",
                )


def _text(script: Script, node: ast.expr) -> object:
    """The text that is asked for, also by a name that is bound once."""
    value = script.scopes.value(node)
    return literal(value) if isinstance(value, ast.expr) else None


def _lookup(script: Script, node: ast.expr) -> ast.expr | None:
    """What a class of torch.nn is asked for with: `name` of `getattr(nn, name)` and `attrgetter(name)(nn)`."""
    match node:
        case ast.Call(func=ast.Call(func=made, args=[name]), args=[home]) if (
            script.scopes.name(made) == "operator.attrgetter"
        ):
            return name if _is_home(script, home) else None
        case ast.Call(func=func, args=[home, name, *_]) if script.scopes.name(func) == "builtins.getattr":
            return name if _is_home(script, home) else None
        case ast.Subscript(value=ast.Call(func=func, args=[home]), slice=name) if (
            script.scopes.name(func) == "builtins.vars"
        ):
            return name if _is_home(script, home) else None
        case ast.Subscript(value=ast.Attribute(value=home, attr="__dict__"), slice=name):
            return name if _is_home(script, home) else None
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[name, *_]):
            return _lookup(script, ast.Subscript(table, name, ast.Load()))
    return None


def _is_home(script: Script, node: ast.expr) -> bool:
    """torch.nn, by its name or as `importlib.import_module("torch.nn")`; one that is computed may be, too."""
    if script.scopes.name(node) in HOMES:
        return True
    made = script.scopes.value(node)
    if isinstance(made, ast.Call) and script.scopes.name(made.func) in (
        "importlib.import_module",
        "builtins.__import__",
    ):
        module = _text(script, made.args[0]) if made.args else None
        return module is None or module in HOMES
    return False


def _any_class(script: Script, node: ast.expr) -> ast.expr | None:
    """What a class of any module is asked for with: `locate(name)`, `instantiate(config)`."""
    if isinstance(node, ast.Call) and node.args and script.scopes.name(node.func) in FINDERS:
        return node.args[0]
    return None


def _is_whole_path(script: Script, node: ast.expr) -> bool:
    """`eval("nn.DataParallel")`, `locate("torch.nn.DataParallel")`, `import_module("torch.nn").DataParallel`."""
    if isinstance(node, ast.Attribute):
        return (
            node.attr == CLASS
            and isinstance(script.scopes.value(node.value), ast.Call)
            and _is_home(script, node.value)
        )
    name = _any_class(script, node)
    text = _text(script, name) if name is not None else None
    return isinstance(text, str) and PATHS.fullmatch(text.strip()) is not None


def _run_text(script: Script, node: ast.expr) -> str | None:
    """The text that is run, if DataParallel stands in it beside other things."""
    if not isinstance(node, ast.Call) or script.scopes.name(node.func) not in RUNS_TEXT or not node.args:
        return None
    text = _text(script, node.args[0])
    names = isinstance(text, str) and re.search(r"(?<!Distributed)(?<!FullySharded)\bDataParallel\b", text)
    return script.where(node.args[0]) if names and not _is_whole_path(script, node) else None


def _first_mention(modules: Modules) -> str:
    """Where the project names DataParallel as a value; an empty text: nowhere."""
    for script in modules.scripts:
        for node in script.nodes(ast.Constant):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_value(script, node):
                return script.where(node) if script is modules.entry else f"{script.shown}:{node.lineno}"
    return next((str(mention) for mention in modules.mentions), "")


def _is_value(script: Script, node: ast.Constant) -> bool:
    """`"DataParallel"`, `"nn.DataParallel"`, or a text of settings that has it; no docstring."""
    text = str(node.value)
    if isinstance(script.scopes.parents[node], ast.Expr):
        return False
    return PATHS.fullmatch(text.strip()) is not None or names_data_parallel(text) is not None
