"""What a wrapped forward may do beside its outputs, and who may notice: what a lean wrapper need not exchange.

Four questions, each answered by a reason with its place, or None: it cannot. Unknown means that it may.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.draws import HOST_STREAMS, draws
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.penalties import raw_models
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.script import Call, Script, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.training import Training
from dp2ddp.codemod.facts.turns import FUNCTIONS

ENDINGS = of(
    "builtins", "KeyboardInterrupt StopIteration SystemExit ImportError ModuleNotFoundError GeneratorExit"
)
PLAIN_DECORATORS = (
    *("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.jit.ignore", "functools.wraps"),
    *("builtins.staticmethod", "builtins.classmethod", "builtins.property"),
)
SILENT = (  # libraries whose functions print nothing in a forward
    *HOST_STREAMS,  # what draws prints nothing
    *("torch.", "torchvision.", "numpy.", "math.", "itertools.", "functools.", "collections."),
    *("copy.", "operator.", "typing.", "time.", "einops.", "builtins.", "os.path.", "abc.", "dataclasses."),
)
PRINTS = {"builtins.print", "builtins.input", "pprint.pprint", "builtins.exec", "builtins.eval"}
TELLS = {
    *(
        "info",
        "debug",
        "warning",
        "warn",
        "error",
        "critical",
        "exception",
        "log",
        "print",
        "write",
        "display",
    ),
    *("print_exc", "print_stack", "flush", "writelines"),
}
BUFFERS = {
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "buffers",
    "named_buffers",
    "_buffers",
    "get_buffer",
}
COPIES = ("copy.", "torch.optim.swa_utils.")
WITH_DROPOUT = ("Dropout", "RReLU", "Transformer", "MultiheadAttention", "LSTM", "GRU", "RNN")
Parts = Callable[[ast.AST], bool]  # whether a node is part of what wrapped models are made of


@dataclass(frozen=True)
class ForwardEffects:
    """Why each may happen, with its place; None: it cannot."""

    caught: str | None  # an exception of the wrapped forward may be caught by the script
    told: str | None  # a forward, or a hook in it, may print, log or warn
    drawn_outside: str | None  # something may draw on the device outside of the wrapped forwards
    buffers_read: str | None  # the wrapped model's buffers may be read without the wrapper


def find_forward_effects(
    program: Script, wraps: tuple[Wrap, ...], training: Training, places: Places, unseen: str | None
) -> ForwardEffects:
    """`unseen`: why the wraps, or the uses of what they wrap, are not all known."""
    if unseen is None and wraps and not training.forwards:
        unseen = "no call of the wrapped model is seen"
    if unseen is None and training.use_stopper is not None:
        unseen = f"{training.use_stopper.why} ({program.where(training.use_stopper.node)})"
    asked = _Asked(program, wraps, training, places)
    return ForwardEffects(
        caught=unseen or asked.first(asked.catching()),
        told=unseen or asked.first(asked.telling()),
        drawn_outside=unseen or asked.first(asked.drawing_outside()),
        buffers_read=unseen or asked.first(asked.reading_buffers()),
    )


Found = Iterator[tuple[str, ast.AST]]


class _Asked:
    def __init__(self, program: Script, wraps: tuple[Wrap, ...], training: Training, places: Places) -> None:
        self.program, self.wraps, self.training, self.places = program, wraps, training, places

    def first(self, found: Found) -> str | None:
        why, node = next(found, ("", None))
        return f"{why} ({self.program.where(node)})" if node is not None else None

    # --- exceptions

    def catching(self) -> Found:
        pending: list[ast.AST] = list(self.training.forwards)
        seen: set[ast.AST] = set()
        while pending:
            node = pending.pop()
            yield from self._around(node)
            function = next(
                (one for one in self.program.scopes.ancestors(node) if isinstance(one, FUNCTIONS)), None
            )
            lambdas = [one for one in self.program.scopes.ancestors(node) if isinstance(one, ast.Lambda)]
            if lambdas:
                yield "a lambda runs the wrapped model, and who calls it is not followed", lambdas[0]
            if function is None or function in seen:
                continue
            seen.add(function)
            yield from self._called_by_others(function)
            pending += self.program.by_word.get(function.name, [])
            owner = self.program.scopes.parents[function]
            if function.name == "__init__" and isinstance(owner, ast.ClassDef):
                pending += self.program.by_word.get(owner.name, [])

    def _around(self, node: ast.AST) -> Found:
        below = node
        for parent in self.program.scopes.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                return
            if (
                isinstance(parent, ast.Try)
                and below in parent.body
                and not all(map(self._ends, parent.handlers))
            ):
                yield "an exception may be caught", parent
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                for item in parent.items:
                    if (self._name(item.context_expr) or "").endswith(("suppress", "assertRaises", "raises")):
                        yield "an exception may be suppressed", parent
            below = parent

    def _ends(self, handler: ast.ExceptHandler) -> bool:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        return all(one is not None and self.program.scopes.name(one) in ENDINGS for one in kinds)

    def _called_by_others(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Found:
        for decorator in function.decorator_list:
            if self._name(decorator) not in PLAIN_DECORATORS:
                yield f"the decorator of {function.name} may catch an exception", function
        unnamed = (
            function.name.startswith("__") and function.name.endswith("__") and function.name != "__init__"
        )
        if unnamed or function.name == "forward":
            yield f"{function.name} is called without its name", function

    def _name(self, node: ast.expr) -> str | None:
        return self.program.scopes.name(node.func if isinstance(node, ast.Call) else node)

    # --- printed lines

    def telling(self) -> Found:
        yield from self._unknown_parts()
        for call in self.program.calls:
            if not self._is_in_forward(call.node):
                continue
            name = call.name or ""
            if name in PRINTS or name.startswith(("logging.", "warnings.", "sys.std")):
                yield f"{name}() runs in a forward", call.node
            elif call.method in TELLS:
                yield f".{call.method}() runs in a forward", call.node
            elif (
                "." in name
                and not name.startswith(SILENT)
                and self.program.scopes.definition(call.node.func) is None
            ):
                yield f"{name}() runs in a forward, and cannot be read", call.node

    def _unknown_parts(self) -> Found:
        """What wrapped models are made of, where that is another library's than torch and torchvision."""
        made = self.places.apart.parts
        if made is None:
            for wrap in self.wraps[:1]:
                yield "what the wrapped model is made of is not followed", wrap.call.node
            return
        libraries = self._libraries
        for node in made:
            name = self.program.scopes.name(node.func) if isinstance(node, ast.Call) else None
            foreign = (
                name and "." in name and not name.startswith(SILENT) and name.partition(".")[0] in libraries
            )
            if isinstance(node, ast.Call) and foreign and self.program.scopes.definition(node.func) is None:
                yield f"{name}() may be part of the model, and cannot be read", node

    @property
    def _libraries(self) -> set[str]:
        """The first words of what is imported, but for the project's own modules."""
        own = {one.name.partition(".")[0] for one in getattr(self.program, "files", ())}
        found: set[str] = set()
        for node in self.program.nodes(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
        return found - own

    def _is_in_forward(self, node: ast.AST) -> bool:
        """In a forward, or in a function that a hook may be: any that stands as an argument of its registration."""
        if self.places.of(node) is Place.FORWARD:
            return True
        around = {
            one for one in self.program.scopes.ancestors(node) if isinstance(one, (*FUNCTIONS, ast.Lambda))
        }
        return not around.isdisjoint(self._hooks)

    @property
    def _hooks(self) -> set[ast.AST]:
        found: set[ast.AST] = set()
        for call in self.program.calls:
            if (call.method or "").startswith("register_") and "hook" in (call.method or ""):
                for given in (*call.node.args, *(one.value for one in call.node.keywords)):
                    found |= {one for one in ast.walk(given) if isinstance(one, ast.Lambda)}
                    for one in ast.walk(given):
                        if isinstance(one, (ast.Name, ast.Attribute)):
                            word = one.id if isinstance(one, ast.Name) else one.attr
                            found |= {
                                f for f in self.program.nodes(*FUNCTIONS) if getattr(f, "name", "") == word
                            }
        return found

    # --- random numbers of the device

    def drawing_outside(self) -> Found:
        parts = self.places.apart.parts
        if parts is None:
            for wrap in self.wraps[:1]:
                yield "what the wrapped model is made of is not followed", wrap.call.node
            return
        for call in self.program.calls:
            place = self.places.of(call.node)
            name = call.name or ""
            inside = place is Place.FORWARD or place is Place.WORKER
            if not inside and draws(name, call.method or "") and not self._is_on_host(call):
                yield (
                    f"{name or call.method}() may draw on the device outside of the wrapped forward",
                    call.node,
                )
            word = name.rpartition(".")[2]
            layer = name.startswith("torch.nn.") and any(one in word for one in WITH_DROPOUT)
            if (layer or name.startswith("torchvision.models.")) and call.node not in parts:
                yield f"{name}() may draw on the device, and may be no part of the wrapped model", call.node

    def _is_on_host(self, call: Call) -> bool:
        """Draws of python and numpy, and torch's whose device is said to be the CPU."""
        if not (call.name or "").startswith("torch."):
            return (call.name or "").startswith((*HOST_STREAMS, "numpy."))
        if call.name in ("torch.randperm",):
            return call.keyword("device") is None
        device = call.keyword("device")
        return device is not None and str(literal(device.value)).startswith("cpu")

    # --- buffers

    def reading_buffers(self) -> Found:
        for node in self.program.nodes(ast.Attribute, ast.Constant):
            word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if isinstance(word, str) and word in BUFFERS and self.places.of(node) is not Place.FORWARD:
                yield f"`{word}` may be read without the wrapper", node
        for call in self.program.calls:
            if (call.name or "").startswith(COPIES) and call.node.args:
                yield f"{call.name}() may copy the model without the wrapper", call.node
        for variable in raw_models(self.program, self.wraps):
            for one in self.program.by_word.get(variable[1].rpartition(".")[2], ()):
                if self._is_behind_wraps(one) and self.program.variable(one) == variable:
                    yield f"`{self.program.told(one)}` is the model without its wrapper", one
        for one in self.program.by_word.get("module", ()):
            wrapped = (
                isinstance(one, ast.Attribute) and self.program.variable(one.value) in self.training.names
            )
            if wrapped and not isinstance(self.program.scopes.parents[one], ast.Attribute):
                yield f"`{self.program.told(one)}` is given another name", one

    def _is_behind_wraps(self, node: ast.expr) -> bool:
        """A read that is not before every wrap, in the same function."""
        if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]  # names and attributes have one
            return False
        for wrap in self.wraps:
            if node in set(ast.walk(wrap.call.node)):
                return False
            same = self.program.scopes.function(node) is self.program.scopes.function(wrap.call.node)
            before = (
                self.program.positions.span(node).start < self.program.positions.span(wrap.call.node).start
            )
            if not same or not before:
                return True
        return False
