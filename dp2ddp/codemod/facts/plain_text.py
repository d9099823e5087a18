"""What is made of constants and of one value that is followed: numbers and text, of which no tensor is asked."""

from __future__ import annotations

import ast

from dp2ddp.codemod.facts.mutating import mutated_argument
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.tables import of

COMPUTES = {  # functions of the value, and of nothing else
    *of(
        "builtins",
        "str int float round abs min max sum sorted len list tuple dict set zip enumerate reversed",
    ),
    *of("builtins", "divmod pow repr format bool hex range vars getattr"),
    *of("time", "strftime ctime asctime localtime gmtime"),
    *("json.dumps", "copy.copy", "copy.deepcopy", "torch.tensor", "torch.Tensor", "torch.FloatTensor"),
}
COMPUTING = ("math.", "statistics.", "datetime.", "numpy.", "collections.", "itertools.")
NOT_COMPUTING = ("numpy.random", "numpy.save", "numpy.load", "numpy.memmap")
TEXT_METHODS = {"format", "join", "ljust", "rjust", "center", "replace", "format_map"}


class Plain:
    """Expressions of constants and of nodes that are followed."""

    def __init__(self) -> None:
        self.followed: set[ast.AST] = set()

    def is_plain(self, script: Script, node: ast.AST, depth: int = 6) -> bool:
        """Whether an expression is made of constants and of the value."""
        if not depth:
            return False
        match node:
            case ast.Constant():
                return True
            case ast.Name():
                return self._is_plain_name(script, node, depth)
            case ast.Attribute():
                return node in self.followed
            case ast.Call(func=func):
                name = script.scopes.name(func) or ""
                if not (computes(name) or is_format(script, node)):
                    return False
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                given += [func.value] if isinstance(func, ast.Attribute) and not name else []
                return all(self.is_plain(script, argument, depth) for argument in given)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.BoolOp()
                | ast.Compare()
                | ast.JoinedStr()
                | ast.FormattedValue()
            ):
                parts = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
                return all(self.is_plain(script, part, depth) for part in parts)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(self.is_plain(script, part, depth) for part in parts)
        return False

    def are_plain(self, script: Script, call: ast.Call) -> bool:
        return all(
            self.is_plain(script, keyword)
            for keyword in (*call.args, *(keyword.value for keyword in call.keywords))
        )

    def _is_plain_name(self, script: Script, node: ast.Name, depth: int) -> bool:
        if node in self.followed:
            return True
        variable = script.variable(node)
        if not isinstance(variable[0], Function) or any(
            inner.arg == node.id for inner in ast.walk(variable[0]) if isinstance(inner, ast.arg)
        ):
            return False
        mentions = [
            mention for mention in script.by_word.get(node.id, ()) if script.variable(mention) == variable
        ]
        given = [
            script.scopes.parents[mention] for mention in mentions if not isinstance(mention.ctx, ast.Load)
        ]
        return bool(given) and all(
            isinstance(argument, (ast.Assign, ast.AugAssign))
            and self.is_plain(script, argument.value, depth - 1)
            for argument in given
        )

    def is_plain_line(self, script: Script, call: ast.Call) -> bool:
        """A line of plain text, by print or `sys.stdout.write`: no number is asked of a tensor for it."""
        name = script.scopes.name(call.func)
        shows = name in ("builtins.print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.flush")
        return shows and self.are_plain(script, call)


def computes(name: str) -> bool:
    if name.startswith(NOT_COMPUTING) or mutated_argument(name) is not None:
        return False
    return name in COMPUTES or name.startswith(COMPUTING)


def is_format(script: Script, call: ast.Call) -> bool:
    """`"...".format(t)`, `", ".join(parts)`, `os.path.join(folder, t)`."""
    if script.scopes.name(call.func) is not None:
        return script.scopes.name(call.func) == "os.path.join"
    return isinstance(call.func, ast.Attribute) and call.func.attr in TEXT_METHODS
