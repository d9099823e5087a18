"""Devices that a script names by an index: "cuda:0", .cuda(0), .to(0), set_device, output_device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.own_mode import in_own_branch
from dp2ddp.codemod.facts.script import Call, Script, literal

CUDA_INDEX = re.compile(r"cuda:(\d+)\Z")
CUDA_HEAD = re.compile(r"cuda:(\{\}|%[ds]|\{0\})?\Z")  # "cuda:" + x, "cuda:%d" % x, "cuda:{}".format(x)
DEVICE_METHODS = ("cuda", "to")


@dataclass(frozen=True, eq=False)
class DeviceIndex:
    """One place that names a device by its index."""

    node: ast.expr | ast.keyword  # what is rewritten
    form: str  # "text" ("cuda:0"), "cuda" (.cuda(0)), "to" (.to(0)), "set" (set_device), "context" (with cuda.device)
    index: int | None  # where it can be read off
    told: str  # the index as it is written
    call: Call | None = None


def find_device_indices(script: Script, wraps: tuple[Wrap, ...]) -> tuple[DeviceIndex, ...]:
    found = (*_texts(script), *_method_calls(script, wraps), *_settings(script), *_factories(script))
    return tuple(use for use in found if not in_own_branch(script, use.node))


def _texts(script: Script) -> Iterator[DeviceIndex]:
    """Strings that name an indexed device, however they are put together."""
    for node in script.scopes.nodes:
        if isinstance(node, ast.expr) and not (
            _is_documentation(script, node) or _is_saved_place(script, node)
        ):
            found = _device_text(node)
            if found is not None and not isinstance(
                script.scopes.parents[node], (ast.JoinedStr, ast.FormattedValue)
            ):
                index = int(found) if found.isdecimal() else None
                yield DeviceIndex(node, "text", index, found)


def _device_text(node: ast.expr) -> str | None:
    """The index in "cuda:0", f"cuda:{i}", "cuda:" + str(i), "cuda:%d" % i, "cuda:{}".format(i)."""
    match node:
        case ast.Constant(value=str(text)):
            found = CUDA_INDEX.match(text)
            return found.group(1) if found else None
        case ast.JoinedStr(values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=index)]):
            return _told(index)
        case ast.BinOp(left=ast.Constant(value=str(head)), right=index) if CUDA_HEAD.match(head):
            return _told(index)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(head)), attr="format"), args=[index]):
            return _told(index) if CUDA_HEAD.match(head) else None
    return None


def _told(index: ast.expr) -> str:
    """`str(i)` and `(i,)` say i."""
    match index:
        case ast.Call(func=ast.Name(id="str" | "int"), args=[one]) | ast.Tuple(elts=[one]):
            return _told(one)
    return ast.unparse(index)


def _method_calls(script: Script, wraps: tuple[Wrap, ...]) -> Iterator[DeviceIndex]:
    """`x.cuda(0)`, `x.cuda(args.gpu)`, `x.to(0)`, `x.to(gpu_ids[0])`; not a torch.device, or a string without index."""
    for call in script.calls:
        if call.method not in DEVICE_METHODS or (call.name or "").startswith("torch.cuda"):
            continue
        given = call.argument(0, "device")
        if (
            given is None
            or is_device(script, given)
            or literal(given) is None
            and isinstance(given, ast.Constant)
        ):
            continue
        index = literal(given)
        if isinstance(index, bool) or index is not None and not isinstance(index, int):
            continue
        if call.method == "to" and not isinstance(index, int) and not is_first_of_ids(_told(given), wraps):
            continue  # .to(device), .to(torch.float64), .to(other)
        node = call.keyword("device") or given
        yield DeviceIndex(node, call.method, index if isinstance(index, int) else None, _told(given), call)


def _factories(script: Script) -> Iterator[DeviceIndex]:
    """`torch.device("cuda", 0)`, `torch.device(0)`, `torch.zeros(3, device=0)`."""
    for call in script.calls:
        if call.name == "torch.device":
            kind, index = call.argument(0, "type"), call.argument(1, "index")
            if index is not None and literal(kind) in ("cuda", None):
                yield DeviceIndex(index, "cuda", _as_index(index), _told(index), call)
            elif _as_index(kind) is not None and kind is not None:
                yield DeviceIndex(kind, "to", _as_index(kind), _told(kind), call)
        elif (call.name or "").startswith("torch.") and call.method != "set_device":
            yield from _device_keyword(call)


def _device_keyword(call: Call) -> Iterator[DeviceIndex]:
    given = call.keyword("device")
    index = _as_index(given.value) if given else None
    if given and index is not None:
        yield DeviceIndex(given, "to", index, str(index), call)


def _as_index(node: ast.expr | None) -> int | None:
    index = literal(node)
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def is_device(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a device by itself: a torch.device(...), a text, or a name that says so."""
    value = script.scopes.value(node)
    if isinstance(value, ast.IfExp):
        return is_device(script, value.body)
    if isinstance(value, ast.Call):
        return script.scopes.name(value.func) == "torch.device"
    if isinstance(value, (ast.Constant, ast.JoinedStr, ast.BinOp)):
        return isinstance(literal(value), str) or _device_text(value) is not None
    return ast.unparse(node).rpartition(".")[2] in ("device", "dev", "DEVICE")


def _settings(script: Script) -> Iterator[DeviceIndex]:
    for call in script.calls:
        form = {"torch.cuda.set_device": "set", "torch.cuda.device": "context"}.get(call.name or "")
        given = call.argument(0, "device")
        if (
            form
            and given is not None
            and not (form == "context" and literal(given) is None and is_device(script, given))
        ):
            index = literal(given)
            yield DeviceIndex(given, form, index if isinstance(index, int) else None, _told(given), call)


def _is_documentation(script: Script, node: ast.expr) -> bool:
    """A string that stands alone as a statement."""
    return isinstance(script.scopes.parents[node], ast.Expr)


def _is_saved_place(script: Script, node: ast.expr) -> bool:
    """`map_location={"cuda:1": "cuda:0"}`: where a tensor was when it was saved, and no device of this run."""
    parent = script.scopes.parents[node]
    if not isinstance(parent, ast.Dict) or node not in parent.keys:
        return False
    given = script.scopes.parents[parent]
    return isinstance(given, ast.keyword) and given.arg == "map_location"


def is_first_of_ids(told: str, wraps: tuple[Wrap, ...]) -> bool:
    """`gpu_ids[0]`, `opt.gpu_ids[0]`, where a wrap is given gpu_ids: the device the model is kept on, by definition.

    The list goes from hand to hand, so that only its last name is compared.
    """
    lists = {ast.unparse(wrap.device_ids).rpartition(".")[2] for wrap in wraps if wrap.device_ids}
    return told.endswith("[0]") and told.removesuffix("[0]").rpartition(".")[2] in lists


def home_index(wraps: tuple[Wrap, ...]) -> int:
    """The device the model lives on under DataParallel: the first of device_ids, or 0."""
    return next((wrap.ids[0] for wrap in wraps if wrap.ids), 0)
