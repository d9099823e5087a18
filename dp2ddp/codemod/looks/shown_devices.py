"""Devices that a script shows, `print("Use GPU: {}".format(args.gpu))`, `print(device)`: ranks have others."""

import ast
import re
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.knowledge.shown import LOGGERS, SHOWS
from dp2ddp.codemod.looks.devices import Devices, index_in_text
from dp2ddp.codemod.model.modules import Call, Module

# What stands before a number that is a device's; `GPUs:` and `GPU memory:` are about something else.
DEVICE = re.compile(
    r"(?<![a-z])(gpu|cuda|device)([ _-]?(id|index|number|no\.?))?[\s:=#\"'\[(>-]*$", re.IGNORECASE
)
PERCENT = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
BRACES = re.compile(r"\{(\d*)(?:![ars])?(?::[^{}]*)?\}")
Piece = str | ast.expr  # of a text: how it is written, or a value that it shows


def shown_numbers(module: Module, devices: Devices) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that show the number of a device, with that number: one of `cuda:`, or that the program also uses."""
    for call in module.calls:
        before = ""
        for piece in _shown(call):
            if isinstance(piece, str):
                before += piece
                continue
            is_named = before.endswith("cuda:") and devices.may_be_index(module, piece)
            if is_named or DEVICE.search(before) and devices.is_used(module, piece):
                yield call.node, piece
            before = ""


def shown_devices(module: Module, devices: Devices) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that show a device from whose name the number goes, with that device."""
    for call in module.calls:
        for piece in _shown(call):
            if isinstance(piece, (ast.Name, ast.Attribute)):
                origins = module.program.flow.origins(module, piece)
                if any(_is_named_in(*origin, devices.named) for origin in origins):
                    yield call.node, piece


def _is_named_in(module: Module, origin: ast.expr, names: set[ast.AST]) -> bool:
    """Whether an expression is one of these names of devices, or `torch.device` of one."""
    is_made = isinstance(origin, ast.Call) and module.name(origin.func) == "torch.device"
    return not names.isdisjoint(ast.walk(origin) if is_made else (origin,))


def _shown(call: Call) -> Iterator[Piece]:
    """All that a call of print or of a logger shows."""
    arguments, name = call.node.args, call.name or ""
    if name != "builtins.print" and call.method not in SHOWS and not name.startswith(LOGGERS):
        return
    match arguments:
        case [ast.Constant(value=str(text)), *values] if values and PERCENT.search(text):
            yield from _filled(PERCENT.split(text), values)  # of a logger: `info("GPU %d", gpu)`
            return
    for argument in arguments:
        yield from _pieces(argument) if index_in_text(argument) is None else ()  # "cuda:0" is edited
        yield " "


def _pieces(node: ast.expr) -> Iterator[Piece]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            for part in parts:
                yield from _pieces(part.value if isinstance(part, ast.FormattedValue) else part)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_pieces(left), *_pieces(right))
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            yield from _filled(PERCENT.split(text), right.elts if isinstance(right, ast.Tuple) else [right])
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"), args=values):
            if all(not number for number in BRACES.findall(text)):  # in their order
                yield from _filled(BRACES.sub("{}", text).split("{}"), values)
        case ast.Call(func=ast.Name(id="str" | "int"), args=[value]):
            yield value
        case _:
            yield node


def _filled(texts: Sequence[str], values: Sequence[ast.expr]) -> Iterator[Piece]:
    if len(texts) != len(values) + 1:
        return
    for text, value in zip(texts, values, strict=False):
        yield from (text, value)
    yield texts[-1]
