"""A program about which the questions of ordinary.py and sizes.py are asked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.codemod.facts.draws import (
    DRAWING_METHODS,
    SAMPLING_METHODS,
    TORCH_DRAWS,
    TORCH_MAKES,
    draws,
)
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal
from dp2ddp.codemod.facts.training import Training

# Layers that draw, and libraries of models that may have some.
DRAWING_LAYERS = (
    *("torch.nn.Dropout", "torch.nn.AlphaDropout", "torch.nn.FeatureAlphaDropout", "torch.nn.RReLU"),
    *("torch.nn.Transformer", "torch.nn.MultiheadAttention", "torch.nn.FractionalMaxPool"),
    *("torchvision.models.", "timm.", "transformers.", "pretrainedmodels.", "efficientnet"),
)
# Words of a program that may make such layers in a way that is not followed here.
DRAWING_WORDS = re.compile(
    r"drop|rrelu|transformer|attention|fractional|^getattr$|^__dict__$|^hub$", re.IGNORECASE
)


@dataclass(frozen=True, eq=False)
class TrainingScript:
    """A program about which is asked."""

    program: Script
    wraps: tuple[Wrap, ...]
    training: Training
    places: Places
    reach: Reach

    @cached_property
    def calls(self) -> tuple[CallSite, ...]:
        """Those that may run."""
        return tuple(call for call in self.program.calls if self.reach.holds(self.program, call.node))

    @cached_property
    def attributes(self) -> tuple[ast.Attribute, ...]:
        """Those that may be asked for."""
        nodes = self.program.nodes(ast.Attribute)
        return tuple(
            node for node in nodes if isinstance(node, ast.Attribute) and self.reach.holds(self.program, node)
        )

    @cached_property
    def made(self) -> dict[Variable, list[ast.expr]]:
        """What is assigned to each variable."""
        made: dict[Variable, list[ast.expr]] = {}
        for node in self.program.nodes(ast.Assign):
            assert isinstance(node, ast.Assign)
            for target in node.targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    made.setdefault(self.program.variable(part), []).append(node.value)
        return made

    @cached_property
    def model_draws(self) -> bool:
        """Whether a model may draw random numbers from the stream of its device."""
        return any(self.is_drawn_by_model(call) for call in self.calls)

    @cached_property
    def model_may_draw(self) -> bool:
        """Whether it is not proven that no model draws random numbers."""
        keywords = (
            node.arg or "" for node in self.program.nodes(ast.keyword) if isinstance(node, ast.keyword)
        )
        recurrent = ("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN")  # dropout is their sixth argument
        return (
            self.model_draws
            or any(DRAWING_WORDS.search(word) for word in (*self.program.by_word, *keywords))
            or any((call.name or "").startswith(recurrent) and len(call.node.args) > 5 for call in self.calls)
        )

    def is_drawn_by_model(self, call: CallSite) -> bool:
        """Whether a call makes a layer that draws, or draws in a forward."""
        return (
            (call.name or "").startswith(DRAWING_LAYERS)
            or call.node in self.loaded_models
            or call.keyword("dropout") is not None
            or self.places.of(call.node) is ExecutionPlace.FORWARD
            and draws(call.name or "", call.method or "")
        )

    @cached_property
    def loaded_models(self) -> frozenset[ast.AST]:
        """`torch.load(...)`, of what is called later: a model, and nobody knows what it draws."""
        called = {self.program.variable(call.node.func) for call in self.calls if call.name is None}
        values = [value for variable in called for value in self.made.get(variable, ())]
        calls = (node for value in values for node in ast.walk(value) if isinstance(node, ast.Call))
        return frozenset(call for call in calls if self.program.scopes.name(call.func) == "torch.load")

    @cached_property
    def device_draws(self) -> tuple[CallSite, ...]:
        """Where the script itself may draw from the stream of a device."""
        return tuple(
            call
            for call in self.calls
            if self.places.of(call.node) is ExecutionPlace.MAIN and _draws_on_device(self.program, call)
        )

    def is_initial(self, call: CallSite) -> bool:
        """Weights that a class draws where it makes them, before the model is on a device."""
        own = self.program.scopes.owner_class(call.node) is not None
        return own and any(_is_of_weights(function) for function in self._functions_around(call))

    def comes_before_wrap(self, call: CallSite) -> bool:
        """Weights drawn before the wrap, which gives rank 0's to all (DistributedDataParallel does)."""
        functions = [function for function in self._functions_around(call) if _is_of_weights(function)]
        mentions = (node for function in functions for node in self.program.by_word.get(function.name, ()))
        return bool(functions) and all(is_before(self.program, node, self.wraps) for node in mentions)

    def _functions_around(self, call: CallSite) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.program.scopes.ancestors(call.node):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def _is_of_weights(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "init" in function.name or "reset_parameters" in function.name


def is_before(program: Script, node: ast.AST, wraps: tuple[Wrap, ...]) -> bool:
    """In the constructor of a class, or above the wrap in the same function."""
    function = program.scopes.function(node)
    if getattr(function, "name", "") == "__init__":
        return True
    span = program.positions.span
    return all(
        program.scopes.function(wrap.call.node) is function and span(node).start < span(wrap.call.node).start
        for wrap in wraps
    )


def _draws_on_device(program: Script, call: CallSite) -> bool:
    """Whether it may draw from the stream of a GPU, which a rank's dropout draws from."""
    name = call.name or ""
    if name in TORCH_MAKES:
        device = call.keyword("device")
        return device is not None and not str(literal(device.value)).startswith("cpu")
    return (
        name in TORCH_DRAWS
        or name.startswith("torch.cuda.")
        and name.endswith("Tensor")
        or call.name is None
        and call.method in DRAWING_METHODS | SAMPLING_METHODS
        and call.method not in program.methods_by_name
    )
