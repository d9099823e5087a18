"""Where a device comes from: the expression that a name, an attribute or a parameter was given, followed to its start.

`self.output_device = output_device`, `Trainer(net, args.gpu)`: one device under several names. What is given two values
keeps its own name, so that a second device never passes for the first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dp2ddp.codemod.facts.aliases import assignments, handed_over
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import SETTINGS, Script, Variable, literal

CUDA_INDEX = re.compile(r"cuda:(\d+)\Z")
CUDA_HEAD = re.compile(r"cuda:(\{\}|%[ds]|\{0\})?\Z")  # "cuda:" + x, "cuda:%d" % x, "cuda:{}".format(x)
DEVICES = ("device", "dev", "DEVICE")  # what torch.devices are called


@dataclass(frozen=True)
class DeviceOrigin:
    """What a device, or its index, is at its start."""

    text: str  # two origins with the same words are the same device
    index: int | None = None  # where it can be read off
    is_home: bool = False  # where DataParallel keeps the model: device_ids[0], output_device
    is_number: bool = False  # certainly an index
    is_device: bool = False  # a text ("cuda:0") or a torch.device, as far as can be seen


HOME = DeviceOrigin("device_ids[0]", is_home=True, is_number=True)


class Origins:
    """The origins of all expressions of a program (all files read as one)."""

    def __init__(self, program: Script, wraps: Sequence[Wrap]) -> None:
        self.program = program
        self._given: dict[Variable, list[ast.expr]] = {}
        for variable, value in all_given(program):
            self._given.setdefault(variable, []).append(value)
        self._lists = {_last(ast.unparse(wrap.device_ids)) for wrap in wraps if wrap.device_ids}
        self._numbers = set(_number_options(program))
        self._known: dict[Variable, DeviceOrigin | None] = {}
        self._homes = {origin.text for origin in self._origins_of_wraps(wraps)}

    def of(self, node: ast.expr) -> DeviceOrigin:
        origin = self._find(node)
        if origin.text in self._homes:
            return replace(origin, is_home=True)
        return origin

    def _origins_of_wraps(self, wraps: Sequence[Wrap]) -> Iterator[DeviceOrigin]:
        """What the wraps themselves say: `device_ids=[args.gpu]`, `output_device=gpu`."""
        for wrap in wraps:
            if isinstance(wrap.device_ids, (ast.List, ast.Tuple)) and wrap.device_ids.elts:
                yield self._find(wrap.device_ids.elts[0])
            if wrap.output_device is not None:
                yield self._find(wrap.output_device)

    def _find(self, node: ast.expr) -> DeviceOrigin:
        index = None if isinstance(node, ast.Constant) else device_text(node)
        if index is not None:
            return replace(self._find(index), is_number=False, is_device=True)
        match node:
            case ast.Constant(value=value):
                return _origin_of_constant(value)
            case ast.Call(func=ast.Name(id="str" | "int"), args=[inner]) | ast.Tuple(elts=[inner]):
                return self._find(inner)
            case ast.IfExp(body=body, orelse=other):
                return self._agreed([body, other]) or DeviceOrigin(self.program.text_of(node))
            case ast.Call():
                return self._origin_of_call(node)
            case ast.Subscript():
                words = self.program.text_of(node)
                is_first = words.endswith("[0]") and _last(words.removesuffix("[0]")) in self._lists
                return HOME if is_first else DeviceOrigin(words)
            case ast.Name() | ast.Attribute():
                return self._origin_of_variable(node)
        return DeviceOrigin(self.program.text_of(node))

    def _origin_of_call(self, node: ast.Call) -> DeviceOrigin:
        name = self.program.scopes.name(node.func)
        if name == "torch.cuda.current_device":
            return HOME
        if name == "torch.device" and node.args:
            return replace(self._find(node.args[-1]), is_number=False, is_device=True)
        return DeviceOrigin(self.program.text_of(node))

    def _origin_of_variable(self, node: ast.Name | ast.Attribute) -> DeviceOrigin:
        words = self.program.text_of(node)
        if _last(words) in self._lists:  # `gpus if type(gpus) is int else gpus[0]`
            return HOME
        variable = self.program.variable(node)
        if isinstance(node, ast.Attribute) and _is_setting(node.value):
            variable = (
                None,
                f"{_last(self.program.text_of(node.value))}.{node.attr}",
            )  # of `self.args.gpu`, too
            words = f".{node.attr}"
        if variable not in self._known:
            self._known[variable] = None  # what is given itself has no other origin
            self._known[variable] = self._agreed(self._given.get(variable, []))
        named = _last(words)
        own = DeviceOrigin(words, is_number=named in self._numbers, is_device=named in DEVICES)
        return self._known[variable] or own

    def _agreed(self, values: Sequence[ast.expr]) -> DeviceOrigin | None:
        """The one origin of several expressions; a CPU, and what is nothing yet, are not asked."""
        origins = {self._find(value) for value in values if not is_no_gpu(value)}
        if len({item.text for item in origins}) != 1:
            return None
        certain = all(each.is_number for each in origins) and not any(is_cpu(value) for value in values)
        devices = any(each.is_device for each in origins)
        return replace(next(iter(origins)), is_number=certain, is_device=devices)


def is_cpu(node: ast.expr) -> bool:
    """`"cpu"`, `torch.device("cpu")`."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func).endswith("device"):
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == "cpu"


def is_no_gpu(node: ast.expr) -> bool:
    """`None`, or a CPU: what `device` is at first, or where there is no GPU."""
    return is_cpu(node) or isinstance(node, ast.Constant) and node.value is None


def device_text(node: ast.expr) -> ast.expr | None:
    """The index in "cuda:0", f"cuda:{i}", "cuda:" + str(i), "cuda:%d" % i, "cuda:{}".format(i)."""
    match node:
        case ast.Constant(value=str(text)):
            match = CUDA_INDEX.match(text)
            return ast.copy_location(ast.Constant(int(match.group(1))), node) if match else None
        case ast.JoinedStr(values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=index)]):
            return plain(index)
        case ast.BinOp(left=ast.Constant(value=str(head)), right=index) if CUDA_HEAD.match(head):
            return plain(index)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(head)), attr="format"), args=[index]):
            return plain(index) if CUDA_HEAD.match(head) else None
    return None


def plain(index: ast.expr) -> ast.expr:
    """`str(i)` and `(i,)` say i."""
    match index:
        case ast.Call(func=ast.Name(id="str" | "int"), args=[node]) | ast.Tuple(elts=[node]):
            return plain(node)
    return index


def _origin_of_constant(value: object) -> DeviceOrigin:
    if isinstance(value, int) and not isinstance(value, bool):
        return DeviceOrigin(str(value), value, is_number=True)
    if isinstance(value, str) and (match := CUDA_INDEX.match(value)):
        return DeviceOrigin(match.group(1), int(match.group(1)), is_device=True)
    return DeviceOrigin(repr(value), is_home=value == "cuda", is_device=isinstance(value, str))


def all_given(program: Script) -> Iterator[tuple[Variable, ast.expr]]:
    """Each variable, with every expression that it is given: by an assignment, a call, a default that a call uses."""
    handed: set[Variable] = set()
    for call in program.calls:
        for variable, value in handed_over(program, call.node):
            handed.add(variable)
            yield variable, value
    for node in program.nodes(ast.Assign, ast.AnnAssign):
        if isinstance(node, ast.Assign):
            for target, value in assignments(program, node):
                yield program.variable(target), value
        elif isinstance(node, ast.AnnAssign) and node.value:
            yield program.variable(node.target), node.value
    for function in program.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        for name, value in _defaults(function):
            if (function, name) not in handed:
                yield (function, name), value
    for node in program.nodes(ast.For, ast.AugAssign, ast.comprehension):  # `for gpu in gpus`: many values
        assert isinstance(node, (ast.For, ast.AugAssign, ast.comprehension))
        yield program.variable(node.target), node.target


def _defaults(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    given = arguments.defaults
    for node, value in zip(plain[len(plain) - len(given) :], given, strict=True):
        yield node.arg, value
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield parameter.arg, default


def _number_options(program: Script) -> Iterator[str]:
    """The options of the command line that are one number: `add_argument("--gpu", type=int)`."""
    for call in program.calls:
        kind = call.keyword("type")
        if call.method != "add_argument" or call.keyword("nargs") or not kind:
            continue
        if isinstance(kind.value, ast.Name) and kind.value.id == "int":
            for name in filter(None, (literal(argument) for argument in call.node.args)):
                yield str(name).lstrip("-").replace("-", "_")


def _is_setting(node: ast.expr) -> bool:
    """Whether an expression is where a command line's settings are kept: `args`, `self.opt`."""
    return _last(ast.unparse(node)) in SETTINGS | {"arg"}


def _last(text: str) -> str:
    return text.rpartition(".")[2]
