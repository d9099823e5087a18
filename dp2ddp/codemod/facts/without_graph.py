"""Uses of a model, of its parts and of its parameters that run no layer and make no graph.

Followed from the thing itself outwards, by every name that it is given: `net.module.freeze_bn()`, an average that reads
`.data`, what is saved, printed, counted or handed to an optimizer. What is not known to be quiet is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.aliases import callee, handed_over
from dp2ddp.codemod.facts.iterations import runs_without_gradient
from dp2ddp.codemod.facts.mutating import FILLING_METHODS, is_in_place
from dp2ddp.codemod.facts.script import Script, Variable, is_text, literal
from dp2ddp.codemod.facts.tables import of

# What may be asked of a model or a tensor without running a layer and without a graph.
GRAPHLESS = {
    *(
        "apply",
        "train",
        "eval",
        "training",
        "state_dict",
        "load_state_dict",
        "zero_grad",
        "cuda",
        "to",
        "cpu",
    ),
    *("float", "double", "__class__", "requires_grad_", "share_memory", "extra_repr"),
    *(
        "data",
        "grad",
        "shape",
        "size",
        "numel",
        "nelement",
        "dim",
        "ndim",
        "requires_grad",
        "device",
        "dtype",
    ),
    *("is_cuda", "detach", "copy_", "zero_", "tolist", "item", "is_leaf", "element_size"),
    *("in_features", "out_features", "num_features", "in_channels", "out_channels", "kernel_size", "stride"),
    *("running_mean", "running_var", "num_batches_tracked", "momentum", "reset_running_stats", "eps"),
    *("buffers", "named_buffers", "reset_parameters", "_get_name"),
}
HOLDS = {  # methods whose result holds parts of what is asked
    *("parameters", "named_parameters", "modules", "named_modules", "children", "named_children"),
    *("keys", "values", "items", "copy", "get", "get_submodule", "get_parameter"),
}
AROUND = of("builtins", "zip enumerate list dict tuple set filter sorted reversed iter next getattr vars")
ASKING = of("builtins", "print len type id str repr hasattr isinstance any all callable")
GRAPHLESS_CALLS = (
    *(
        "torch.save",
        "torch.optim.",
        "copy.deepcopy",
        "logging.",
        "torch.nn.utils.clip_grad",
        "torch.nn.init.",
    ),
    *("torch.optim.swa_utils.", "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "torch.numel"),
    *("torchsummary.", "torchinfo.", "thop.", "ptflops."),
)
TELLING = {"add_histogram", "add_scalar", "info", "debug", "warning", "watch"}
DEPTH = 12


class WithoutGraph:
    """What is asked about uses, in one program."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def holds(self, node: ast.expr, seen: frozenset[object] = frozenset()) -> bool:
        """Whether nothing that is done with the value of an expression runs a layer or makes a graph."""
        if node in seen:
            return True  # asked already: a circle adds nothing
        if len(seen) > DEPTH * DEPTH:
            return False
        if runs_without_gradient(self.script, node):
            return True
        return self._in(self.script.scopes.parents[node], node, seen | {node})

    def _in(self, parent: ast.AST, node: ast.expr, seen: frozenset[object]) -> bool:
        match parent:
            case ast.Attribute():
                return self._attribute(parent, seen)
            case ast.Subscript(value=value):
                if value is not node:
                    return True
                if isinstance(parent.ctx, ast.Load):
                    return self.holds(parent, seen)
                return isinstance(
                    self.script.scopes.value(node), (ast.Dict, ast.List)
                )  # `state["epoch"] = 3`
            case ast.Tuple() | ast.List() | ast.Set() | ast.Starred() | ast.Dict():
                return self.holds(parent, seen)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.holds(parent, seen)
            case ast.comprehension(target=target, iter=over) | ast.For(target=target, iter=over) if (
                over is node
            ):
                return self._names(target, seen)
            case ast.keyword():
                call = self.script.scopes.parents[parent]
                return isinstance(call, ast.Call) and self._given(call, node, seen)
            case ast.Call(func=func):
                return func is not node and self._given(parent, node, seen)
            case ast.Assign(targets=targets):
                return all(self._names(target, seen) for target in targets)
            case ast.AugAssign(target=ast.Name() as target, op=ast.Add()) if self._is_container(target):
                return self._names(target, seen)  # base += [p for p in layer.parameters()]
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                within = isinstance(parent, ast.AnnAssign) or self.holds(parent, seen)
                return within and self._names(target, seen)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                return self._returned(node, seen)
            case ast.IfExp(test=test) if test is not node:
                return self.holds(parent, seen)
            case ast.BoolOp():
                return self.holds(parent, seen)
            case ast.BinOp(left=left):
                return left is not node and is_text(left)
            case ast.Compare() | ast.If() | ast.While() | ast.Assert() | ast.Expr() | ast.FormattedValue():
                return True
            case ast.IfExp() | ast.UnaryOp(op=ast.Not()) | ast.comprehension() | ast.Delete():
                return True
        return False

    def _attribute(self, node: ast.Attribute, seen: frozenset[object]) -> bool:
        around = self.script.scopes.parents[node]
        if isinstance(node.ctx, ast.Store):
            value = getattr(around, "value", None)
            return node.attr in GRAPHLESS or _is_number(value)
        if isinstance(around, ast.Call) and around.func is node and node.attr in HOLDS:
            return self.holds(around, seen)
        if node.attr in GRAPHLESS or node.attr in FILLING_METHODS and self._is_container(node.value):
            return True
        if not isinstance(around, ast.Call) or around.func is not node:
            return self.holds(node, seen)
        methods = self.script.methods_by_name.get(node.attr, [])
        return bool(methods) and all(self._is_quiet_method(method, seen) for method in methods)

    def _is_container(self, node: ast.expr) -> bool:
        """A name of lists or dicts of the script's own: what else is put there changes no model."""
        if not isinstance(node, ast.Name):
            return False
        stores = [
            self.script.scopes.parents[mention]
            for mention in self.script.by_word.get(node.id, ())
            if not isinstance(mention.ctx, ast.Load)
            and self.script.variable(mention) == self.script.variable(node)
        ]
        made = [store for store in stores if not isinstance(store, ast.AugAssign)]
        home = getattr(self.script.variable(node)[0], "args", None)
        given = isinstance(home, ast.arguments) and any(
            isinstance(inner, ast.arg) and inner.arg == node.id for inner in ast.walk(home)
        )
        return (
            bool(made)
            and not given
            and all(
                isinstance(node, ast.Assign) and isinstance(node.value, (ast.Dict, ast.List, ast.ListComp))
                for node in made
            )
        )

    def _is_quiet_method(self, method: ast.AST, seen: frozenset[object]) -> bool:
        """Whether a method runs nothing of the object that it is called on."""
        arguments = getattr(method, "args", None)
        first = arguments.args[:1] if isinstance(arguments, ast.arguments) else []
        if self._is_static(method):
            return True
        supers = (
            node
            for node in ast.walk(method)
            if isinstance(node, ast.Call) and self.script.scopes.name(node.func) == "builtins.super"
        )
        own = bool(first) and self._variable((method, first[0].arg), seen)
        return own and all(self.holds(parent, seen) for parent in supers)

    def _is_static(self, method: ast.AST) -> bool:
        decorators = getattr(method, "decorator_list", ())
        return any(self.script.scopes.name(decorator) == "builtins.staticmethod" for decorator in decorators)

    def _given(self, call: ast.Call, node: ast.expr, seen: frozenset[object]) -> bool:
        """Given to a call: one that is known to be harmless, or a function of the script that is."""
        name = self.script.scopes.name(call.func) or ""
        if name in ASKING or name.startswith(GRAPHLESS_CALLS):
            return True
        if name == "builtins.getattr" and len(call.args) > 1 and literal(call.args[1]) in GRAPHLESS:
            return True
        if name in AROUND:
            return self.holds(call, seen)
        if isinstance(call.func, ast.Attribute):
            if call.func.attr in TELLING and callee(self.script, call) is None:
                return True
            if call.func.attr in FILLING_METHODS and callee(self.script, call) is None:
                return self._names(call.func.value, seen)
            if is_in_place(call.func.attr) and _is_of_data(call.func.value):
                return isinstance(self.script.scopes.parents[call], ast.Expr)
        parameters = [parameter for parameter, given in handed_over(self.script, call) if given is node]
        if not parameters and callee(self.script, call) is None and isinstance(call.func, ast.Attribute):
            parameters = list(self._parameters(call, node))
        return bool(parameters) and all(self._variable(item, seen) for item in parameters)

    def _parameters(self, call: ast.Call, node: ast.expr) -> Iterator[Variable]:
        """What methods of the called name, of whichever class, call an argument; nothing if one has no name for it."""
        for method in self.script.methods_by_name.get(call.func.attr, ()):  # type: ignore[attr-defined]  # of an attribute
            names = [argument.arg for argument in method.args.args][0 if self._is_static(method) else 1 :]
            keyword = next((keyword.arg for keyword in call.keywords if keyword.value is node), None)
            place = call.args.index(node) if node in call.args else len(names)
            name = keyword or (names[place] if place < len(names) else None)
            yield method, name or "**"

    def _names(self, target: ast.expr, seen: frozenset[object]) -> bool:
        """Whether what a target names is used quietly wherever it is read."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(self._names(part, seen) for part in parts)
            case ast.Starred(value=part):
                return self._names(part, seen)
            case ast.Name() | ast.Attribute():
                return self._variable(self.script.variable(target), seen)
            case ast.Subscript(value=ast.Name() | ast.Attribute() as kept):
                return self._variable(self.script.variable(kept), seen)
        return False

    def _variable(self, variable: Variable, seen: frozenset[object]) -> bool:
        if variable in seen:
            return True
        if variable[1] == "**":
            return False  # an argument that no parameter has a name for
        reads = self._reads(variable)
        return len(seen) <= DEPTH * DEPTH and all(self.holds(read, seen | {variable}) for read in reads)

    def _reads(self, variable: Variable) -> Iterator[ast.expr]:
        for mention in self.script.by_word.get(variable[1].rpartition(".")[2], ()):
            if isinstance(mention.ctx, ast.Load) and self.script.variable(mention) == variable:
                yield mention

    def _returned(self, node: ast.expr, seen: frozenset[object]) -> bool:
        """What a function returns is used quietly by all who call it: whoever has its name."""
        function = self.script.scopes.function(node)
        name = getattr(function, "name", None)
        if name is None or name.startswith("__"):
            return name in ("__str__", "__repr__", "__len__")
        calls = [
            (mention, self.script.scopes.parents[mention])
            for mention in self.script.by_word.get(str(name), ())
        ]
        return all(
            isinstance(call, ast.Call) and call.func is node and self.holds(call, seen)
            for node, call in calls
        )


def _is_number(value: ast.expr | None) -> bool:
    """A literal, or arithmetic without a call: no layer."""
    arithmetic = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare)
    return isinstance(value, arithmetic) and not any(isinstance(node, ast.Call) for node in ast.walk(value))


def _is_of_data(node: ast.expr) -> bool:
    """`average.data`, `average.data.mul_(0.9)`: no graph is kept there."""
    inner: ast.AST = node
    while isinstance(inner, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(inner, ast.Attribute) and inner.attr == "data":
            return True
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return False
