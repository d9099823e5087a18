"""Devices that a script names by an index: "cuda:0", .cuda(0), .to(0), .to(gpu), set_device, output_device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.origins import DeviceOrigin, Origins, device_text, is_cpu, plain
from dp2ddp.codemod.facts.own_mode import in_own_branch
from dp2ddp.codemod.facts.script import CallSite, Script, literal

DEVICE_METHODS = ("cuda", "to")


@dataclass(frozen=True, eq=False)
class DeviceIndex:
    """One place that names a device by its index."""

    node: ast.expr | ast.keyword  # what is rewritten
    form: str  # "text" ("cuda:0"), "cuda" (.cuda(0)), "to" (.to(0)), "set" (set_device), "context" (with cuda.device)
    text: str  # the index as it is written
    origin: DeviceOrigin
    call: CallSite | None = None

    @property
    def index(self) -> int | None:
        """Where it can be read off."""
        return self.origin.index


def find_device_indices(script: Script, origins: Origins) -> tuple[DeviceIndex, ...]:
    uses = (
        *_texts(script, origins),
        *_method_calls(script, origins),
        *_settings(script, origins),
        *_factories(script, origins),
        *_choices(script, origins),
    )
    return tuple(use for use in uses if not in_own_branch(script, use.node))


def _texts(script: Script, origins: Origins) -> Iterator[DeviceIndex]:
    """Strings that name an indexed device, however they are put together."""
    for node in script.scopes.nodes:
        if isinstance(node, ast.expr) and not (
            _is_documentation(script, node) or _is_saved_place(script, node)
        ):
            index = device_text(node)
            if index is not None and not isinstance(
                script.scopes.parents[node], (ast.JoinedStr, ast.FormattedValue)
            ):
                yield DeviceIndex(node, "text", ast.unparse(index), origins.of(index))


def _use(
    node: ast.expr | ast.keyword, form: str, index: ast.expr, origins: Origins, call: CallSite
) -> DeviceIndex:
    return DeviceIndex(node, form, ast.unparse(plain(index)), origins.of(index), call)


def _method_calls(script: Script, origins: Origins) -> Iterator[DeviceIndex]:
    """`x.cuda(0)`, `x.cuda(args.gpu)`, `x.to(gpu_ids[0])`, `x.to(gpu)` of a number; no torch.device, no text."""
    for call in script.calls:
        if call.method not in DEVICE_METHODS or (call.name or "").startswith("torch.cuda"):
            continue
        given = call.argument(0, "device")
        if given is not None and _names_index(given, call.method, origins):
            yield _use(call.keyword("device") or given, call.method, given, origins, call)


def _names_index(given: ast.expr, method: str, origins: Origins) -> bool:
    """Whether a device is given by its number: of `.to()`, which takes other things too, that must be certain."""
    if isinstance(given, ast.Constant):
        return _as_index(given) is not None
    if origins.of(given).is_number:
        return True
    return method == "cuda" and not origins.of(given).is_device


def _factories(script: Script, origins: Origins) -> Iterator[DeviceIndex]:
    """`torch.device("cuda", 0)`, `torch.device(0)`, `torch.zeros(3, device=0)`."""
    for call in script.calls:
        if call.name == "torch.device":
            kind, index = call.argument(0, "type"), call.argument(1, "index")
            if index is not None and literal(kind) in ("cuda", None):
                yield _use(index, "cuda", index, origins, call)
            elif kind is not None and origins.of(kind).is_number:
                yield _use(kind, "to", kind, origins, call)
        elif (call.name or "").startswith("torch.") and call.method != "set_device":
            given = call.keyword("device")
            if given and origins.of(given.value).is_number:
                yield _use(given, "to", given.value, origins, call)


def _choices(script: Script, origins: Origins) -> Iterator[DeviceIndex]:
    """`gpu if torch.cuda.is_available() else "cpu"`: what stands beside a CPU is a device."""
    for node in script.nodes(ast.IfExp):
        assert isinstance(node, ast.IfExp)
        for inner, other in ((node.body, node.orelse), (node.orelse, node.body)):
            if is_cpu(other) and origins.of(inner).is_number:
                yield DeviceIndex(inner, "to", ast.unparse(inner), origins.of(inner))


def _as_index(node: ast.expr | None) -> int | None:
    index = literal(node)
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def _settings(script: Script, origins: Origins) -> Iterator[DeviceIndex]:
    for call in script.calls:
        form = {"torch.cuda.set_device": "set", "torch.cuda.device": "context"}.get(call.name or "")
        given = call.argument(0, "device")
        if form and given is not None and (form == "set" or _names_index(given, "cuda", origins)):
            yield _use(given, form, given, origins, call)


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


def home_index(wraps: tuple[Wrap, ...]) -> int:
    """The device the model lives on under DataParallel: the first of device_ids, or 0."""
    return next((wrap.ids[0] for wrap in wraps if wrap.ids), 0)
