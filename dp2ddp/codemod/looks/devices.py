"""Devices that a script names by their numbers ("cuda:0", .cuda(0), .to(gpu), set_device, device=gpu), and shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, Remove, Replace
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.shown import LOGGERS, SHOWS
from dp2ddp.codemod.looks.own_mode import OwnMode
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.texts import pieces
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import rename

# What names of numbers look like.
INDEX = re.compile(r"gpu|device_?ids?\b|local_rank|cuda_?id", re.IGNORECASE)
TEXT = re.compile(r"cuda:(\d+)")

OWN = '"cuda"'
BECAUSE = "the rank's own device"
SET_IN_EXPRESSION = Reason(
    "set-device-in-expression", "set_device() is part of an expression", "give it a line of its own"
)


@dataclass(frozen=True, eq=False)
class Use:
    """One place that names a device by its number, and the edit that names the rank's own instead."""

    node: ast.expr
    index: ast.expr | None  # None: whatever device it is
    own: Finding


def uses(module: Module, devices: Devices) -> Iterator[Use]:
    """All places of a file."""
    yield from _texts(module)
    for call in module.calls:
        yield from _of_call(module, call, devices)


def _texts(module: Module) -> Iterator[Use]:
    """ "cuda:0", f"cuda:{gpu}", "cuda:%d" % gpu, "cuda:" + str(gpu), "cuda:{}".format(gpu)."""
    for node in module.nodes(ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call):
        assert isinstance(node, ast.expr)
        parent = module.parents.get(node)
        is_key = isinstance(parent, ast.Dict) and node in parent.keys  # of a map_location
        index = None if is_key or isinstance(parent, (ast.Expr, ast.JoinedStr)) else index_in_text(node)
        if index is not None:
            is_single = module.text(node).lstrip("fFrRbBuU(").startswith("'")
            edit = Replace(node, "'cuda'" if is_single else OWN, BECAUSE)
            if _is_compared_as_text(parent):
                numbered = f"str(numbered_device({edit.code}))"
                edit = Replace(node, numbered, BECAUSE, helpers=("numbered_device",))
            yield Use(node, index, edit)


def _is_compared_as_text(around: ast.AST | None) -> bool:
    """`str(x.device) == "cuda:0"`."""
    match around:
        case ast.Compare(left=left, comparators=[right]):
            made = (each.args for each in (left, right) if isinstance(each, ast.Call))
            return any(
                isinstance(each, ast.Attribute) and each.attr == "device" for args in made for each in args
            )
    return False


def index_in_text(node: ast.expr) -> ast.expr | None:
    """The number in the name of a device."""
    if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Constant):
        return None  # a sum may be long, and each part of it asks
    parts = [each for each in pieces(node) if each]
    text = "".join(each for each in parts if isinstance(each, str))
    values = [each for each in parts if isinstance(each, ast.expr)]
    if not values and (match := TEXT.fullmatch(text)):
        return ast.copy_location(ast.Constant(int(match[1])), node)
    return values[0] if text == "cuda:" and values == parts[-1:] else None


def _of_call(module: Module, call: Call, devices: Devices) -> Iterator[Use]:
    """`set_device(0)`, `x.cuda(0)`, `torch.device("cuda", 0)`, `torch.cuda.device(0)`, `x.to(0)`, `device=0`."""
    kind, name, node = does(call.name), call.name or "", call.node
    device = call.argument(0, "device")
    named = next((word.value for word in node.keywords if word.arg in ("device", "map_location")), None)
    given = device if call.method == "to" else None if module.program.is_local(call.name) else named
    if kind is Does.SET_DEVICE:
        yield Use(node, device, _without_setting(module, node))
    elif call.method == "cuda" and device is not None and not name.startswith("torch."):
        if not (isinstance(device, ast.Constant) and isinstance(device.value, (bool, type(None)))):
            edit = DropArgument(call.keyword("device") or device, node, BECAUSE)
            yield Use(device, device, edit)
    elif kind is Does.MAKE_DEVICE:
        number = call.keyword("index")  # torch.device(type="cuda", index=0)
        places = [*node.args, *filter(None, [call.argument(None, "device")])]
        numbers = [each for each in places if len(places) > 1 or devices.may_be_index(module, each)]
        if number is not None:
            yield Use(number.value, number.value, DropArgument(number, node, BECAUSE))
        elif numbers and name == "torch.device":
            yield Use(node.func, numbers[-1], rename(node.func, "own_device", BECAUSE))
        elif numbers:
            yield Use(numbers[0], numbers[-1], Replace(numbers[0], OWN, BECAUSE))
    elif given is not None and devices.may_be_index(module, given):
        yield _value(module, given, devices)


def _without_setting(module: Module, call: ast.Call) -> Finding:
    statement = module.parents[call]
    if isinstance(statement, ast.Expr):
        return Remove(statement, "init_distributed() has set the rank's device")
    return Hazard(call, SET_IN_EXPRESSION)


def _value(module: Module, node: ast.expr, devices: Devices) -> Use:
    if devices.is_index(module, node):
        return Use(node, node, Replace(node, OWN, BECAUSE))
    code = "own_device({device})"
    return Use(node, node, Replace(node, code, BECAUSE, {"device": node}, helpers=("own_device",)))


class Devices:
    """What the numbers of devices are: which is the model's own, and whether there is another one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.wraps = find_wraps(program)
        self.lists = {_word(wrap.device_ids) for wrap in self.wraps if wrap.device_ids is not None} - {""}

    @cached_property
    def homes(self) -> set[str | int]:
        """The devices that DataParallel keeps models on: the first of device_ids, and output_device.

        Where numbers tell them, those of the first wrap: other models on other devices have replicas that no rank has.
        """
        indices: set[str | int] = set()
        is_known = False
        for wrap in self.wraps:
            ids = wrap.module.value(wrap.device_ids) if wrap.device_ids is not None else None
            first = ids.elts[:1] if isinstance(ids, (ast.List, ast.Tuple)) else []
            is_number = any(isinstance(each, ast.Constant) for each in first)
            first, is_known = [] if is_number and is_known else first, is_known or is_number
            for node in (*first, *filter(None, [wrap.output_device])):
                indices |= {self._key(source) for _, source in self.program.flow.origins(wrap.module, node)}
        return indices | {f"{name}[0]" for name in self.lists} | self.lists | (set() if is_known else {0})

    def may_be_index(self, module: Module, node: ast.expr) -> bool:
        """Whether a value may be the number of a device."""
        return any(self._is_index(*source) for source in self.program.flow.origins(module, node))

    def is_index(self, module: Module, node: ast.expr) -> bool:
        """Whether a value is one in any case."""
        return all(self._is_index(*source) for source in self.program.flow.origins(module, node))

    def others(self, module: Module, index: ast.expr) -> set[str | int]:
        """The numbers that a device may have and that are not the model's."""
        sources = (each for each in self.program.flow.origins(module, index) if self._is_index(*each))
        return {self._key(source) for _, source in sources} - self.homes

    def is_named(self, module: Module, node: ast.expr) -> bool:
        """Whether a value is a device that is named by a number somewhere, or `torch.device` of such a name."""
        origins = self.program.flow.origins(module, node)
        return any(origin in self._named for _, origin in origins) or self.is_made(module, node)

    def is_made(self, module: Module, node: ast.expr) -> bool:
        """Whether a value is `torch.device` of a number."""
        return any(
            isinstance(origin, ast.Call)
            and home.name(origin.func) == "torch.device"
            and not self._named.isdisjoint(ast.walk(origin))
            for home, origin in self.program.flow.origins(module, node)
        )

    @cached_property
    def _uses(self) -> list[tuple[Module, Use]]:
        return [(module, use) for module in self.program.modules for use in uses(module, self)]

    @cached_property
    def _named(self) -> set[ast.AST]:
        return {use.node for _, use in self._uses}

    @cached_property
    def named_elsewhere(self) -> set[str | int]:
        """All devices of the program that are not the model's."""
        own_modes = {module: OwnMode(module) for module in self.program.modules}
        runs = self.program.reach.runs
        indices = (
            self.others(module, use.index)
            for module, use in self._uses
            if use.index is not None and not own_modes[module].holds(use.node) and runs(module, use.node)
        )
        return set().union(*indices)

    def _is_index(self, module: Module, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int) and not isinstance(value, bool)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                words = {_word(node), _word(node).removesuffix("[0]")}
                is_known = not words.isdisjoint(self.lists | self._number_options)
                return is_known or INDEX.search(ast.unparse(node)) is not None
            case ast.Call(func=func):
                return module.name(func) == "torch.cuda.current_device"
        return False

    def _key(self, node: ast.expr) -> str | int:
        """What an origin is called wherever it is meant: `gpu` of `args.gpu` and `self.opt.gpu`."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Call():
                return 0 if ast.unparse(node.func).endswith("current_device") else ast.unparse(node)
        return _word(node) or ast.unparse(node)

    @cached_property
    def _number_options(self) -> set[str]:
        """The options of the command line that are one number: `add_argument("--device", type=int)`."""
        indices = set()
        for _, call in self.program.calls:
            kind = call.argument(None, "type")
            is_number = isinstance(kind, ast.Name) and kind.id == "int" and not call.keyword("nargs")
            if call.method == "add_argument" and is_number:
                flags = [str(each.value) for each in call.node.args if isinstance(each, ast.Constant)]
                indices |= {flag.lstrip("-").replace("-", "_") for flag in flags}
        return indices


@lru_cache(maxsize=1)
def devices_of(program: Program) -> Devices:
    """The devices of the program that is looked at."""
    return Devices(program)


def _word(node: ast.expr | None) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value, slice=ast.Constant(value=int(place))):
            return f"{_word(value)}[{place}]"
    return ""


def compared_device(module: Module, node: ast.AST, devices: Devices) -> ast.expr | None:
    """The device by number that a tensor's is compared with: `self.device` of `x.device != self.device`."""
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
            for tensors, named in ((left, right), (right, left)):
                sources = [tensors, *(each for _, each in module.program.flow.origins(module, tensors))]
                is_of_tensor = any(
                    isinstance(each, ast.Attribute) and each.attr == "device" for each in sources
                )
                if is_of_tensor and devices.is_made(module, named) and not devices.is_made(module, tensors):
                    return named
    return None


def shown_devices(module: Module, devices: Devices) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of print and of loggers that show a device, which loses its number."""
    for call in module.calls:
        name = call.name or ""
        if name == "builtins.print" or call.method in SHOWS or name.startswith(LOGGERS):
            given = (each for value in call.node.args for each in _shown(value))
            if shown := next((each for each in given if devices.is_named(module, each)), None):
                yield call.node, shown


def _shown(node: ast.AST) -> Iterator[ast.expr]:
    """The names and attributes that a text shows; not what functions are given that stand in it."""
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield node
        case ast.Call(func=func) if last_name(func) not in ("format", "str", "repr"):
            return
        case _:
            yield from (each for inner in ast.iter_child_nodes(node) for each in _shown(inner))
