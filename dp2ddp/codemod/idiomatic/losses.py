"""What kind of number a loss is: DistributedDataParallel averages over ranks, as is right for a mean over rows alone.

Followed from `loss.backward()` back to a loss of torch, through names, sums, factors and functions of the project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.methods import method_of
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.idiomatic.remembered import once_a_project
from dp2ddp.codemod.idiomatic.values import origins, values_of

MEANS = "CrossEntropy NLL BCE BCEWithLogits MSE L1 SmoothL1 Huber KLDiv MultiMargin SoftMargin MultiLabelSoftMargin"
MEANS += (
    " PoissonNLL GaussianNLL CTC HingeEmbedding CosineEmbedding MarginRanking TripletMargin MultiLabelMargin"
)
CLASSES = {f"torch.nn.{name}Loss" for name in MEANS.split()}
FUNCTIONS = of(
    "torch.nn.functional",
    "cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss "
    "huber_loss kl_div multi_margin_loss soft_margin_loss multilabel_soft_margin_loss poisson_nll_loss ctc_loss "
    "gaussian_nll_loss hinge_embedding_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss "
    "multilabel_margin_loss",
)
PER_ELEMENT = {
    *of("torch", "pow abs square exp log log1p sigmoid tanh sqrt clamp relu maximum minimum where")
}
PAIRS = {*of("torch", "mm matmul cdist"), *of("torch.nn.functional", "pdist")}
REDUCING_METHODS = {"mean", "sum", "std", "var", "norm", "median"}
REDUCING = {*of("torch", "mean sum std var norm median")}
PAIR_METHODS = {"mm", "matmul", "t"}
SCALE_METHODS = {"scale", "to", "float", "cuda", "double", "half", "contiguous"}
DEPTH = 12


class LossKind(Enum):
    MEAN = "a mean over rows"
    WEIGHTED = "a mean over what counts: classes have weights, or some targets are left out"
    SUM = "a sum over rows, which DistributedDataParallel divides by the number of ranks"
    PAIRS = "rows are compared with each other, and a rank has only its own"
    UNKNOWN = "it cannot be seen whether it is a mean over rows"


ORDER = (LossKind.MEAN, LossKind.WEIGHTED, LossKind.SUM, LossKind.PAIRS, LossKind.UNKNOWN)


@dataclass(frozen=True, eq=False)
class Loss:
    """What a backward pass begins with."""

    kind: LossKind
    node: ast.AST  # what makes it of this kind


@once_a_project
def read_losses(facts: Facts) -> tuple[Loss, ...]:
    """The loss of each backward pass of the project."""
    return tuple(_loss_of_backward(facts, backward) for backward in facts.training.backwards)


def read_replicas(facts: Facts) -> Iterator[ast.expr]:
    """Where the losses that replicas returned are taken apart, `losses[0]`, `len(losses)`: a rank has one number."""
    program = facts.program
    taken = {
        program.variable(call.func.value)
        for call in program.nodes(ast.Call)
        if isinstance(call, ast.Call)
        and _averages_forward(facts, call)
        and isinstance(call.func, ast.Attribute)
    }
    for node in program.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        if program.variable(node) not in taken or not isinstance(node.ctx, ast.Load):
            continue
        parent = program.scopes.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr == "data":
            node, parent = parent, program.scopes.parents[parent]
        is_length = isinstance(parent, ast.Call) and program.scopes.name(parent.func) == "builtins.len"
        if is_length or isinstance(parent, ast.Subscript) and parent.value is node:
            yield node


def _averages_forward(facts: Facts, call: ast.Call) -> bool:
    """`losses.mean()` behind `losses = net(x, y)`."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="mean" | "sum"), args=[]):
            return any(origin in facts.training.forwards for origin in origins(facts, name))
    return False


def _loss_of_backward(facts: Facts, backward: ast.Call) -> Loss:
    assert isinstance(backward.func, ast.Attribute)
    return _LossReader(facts).read(backward.func.value, DEPTH)


class _LossReader:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.program = facts.program
        self.forwards = set(facts.training.forwards)
        self.busy: set[ast.AST] = set()

    def read(self, node: ast.expr, depth: int) -> Loss:
        unknown = Loss(LossKind.UNKNOWN, node)
        if not depth or node in self.busy:
            return unknown
        self.busy.add(node)
        try:
            return self._read(node, depth - 1) or unknown
        finally:
            self.busy.discard(node)

    def _read(self, node: ast.expr, depth: int) -> Loss | None:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self._sum(left, right, depth)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                parts = [side for side in (left, right) if not self._is_factor(side)]
                return self.read(parts[0], depth) if len(parts) == 1 else None
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._quotient(left, right, depth)
            case ast.UnaryOp(operand=operand):
                return self.read(operand, depth)
            case ast.IfExp(body=body, orelse=orelse):
                return self._worst([self.read(body, depth), self.read(orelse, depth)])
            case ast.Call():
                return self._loss_of_call(node, depth)
            case ast.Name() | ast.Attribute():
                return self._loss_of_name(node, depth)
            case ast.Subscript(value=value) if self._is_forward(value):
                return Loss(LossKind.MEAN, node)
        return None

    def _sum(self, left: ast.expr, right: ast.expr, depth: int) -> Loss:
        parts = [side for side in (left, right) if not isinstance(side, ast.Constant)]
        return self._worst([self.read(part, depth) for part in parts])

    def _worst(self, losses: list[Loss]) -> Loss:
        return max(losses, key=lambda loss: ORDER.index(loss.kind))

    def _is_factor(self, node: ast.expr) -> bool:
        """A number that has nothing to do with rows: a constant, a name or an option that no call of a model makes."""
        value = self.program.scopes.value(node)
        if literal(value) is not None:
            return True
        if isinstance(node, ast.Attribute) and not any(
            isinstance(inner, ast.Call) for inner in ast.walk(node)
        ):
            return True
        if isinstance(node, ast.BinOp):
            return self._is_factor(node.left) and self._is_factor(node.right)
        return isinstance(node, ast.Name) and all(
            not self._comes_from_rows(value) for value in self._values(node)
        )

    def _comes_from_rows(self, value: ast.expr) -> bool:
        """Whether a value may be a tensor of losses: it is made by a model, a criterion or torch."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                name = self.program.scopes.name(node.func) or ""
                is_size = isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "dim", "numel")
                if not is_size and not name.startswith(("random.", "math.", "builtins.", "numpy.")):
                    return True
        return False

    def _quotient(self, left: ast.expr, right: ast.expr, depth: int) -> Loss:
        loss = self.read(left, depth)
        if loss.kind is LossKind.SUM and self._counts_rows(right):
            return Loss(LossKind.MEAN, left)
        return loss

    def _counts_rows(self, node: ast.expr) -> bool:
        """`x.size(0)`, `len(x)`, `x.shape[0]`: the rows that the rank has."""
        node = self.program.scopes.value(node) or node  # type: ignore[assignment]
        match node:
            case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
                return True
            case ast.Subscript(
                value=ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size")),
                slice=ast.Constant(value=0),
            ):
                return True
            case ast.Call(func=func, args=[ast.Name()]):
                return self.program.scopes.name(func) == "builtins.len"
        return False

    def _is_forward(self, node: ast.AST) -> bool:
        made = self.program.scopes.value(node)
        return isinstance(made, ast.Call) and made in self.forwards

    # --- calls

    def _loss_of_call(self, call: ast.Call, depth: int) -> Loss | None:
        name = self.program.scopes.name(call.func) or ""
        if name in FUNCTIONS:
            return self._loss_of_rows(call) or Loss(self._by_reduction(call), call)
        if call in self.forwards:
            return Loss(
                LossKind.MEAN, call
            )  # a loss of its own: each replica's was one number, and their mean was taken
        if name == "builtins.sum" and call.args:
            return self._loss_of_parts(call.args[0], depth)
        if name in ("torch.mean", "torch.sum"):
            return self._reduced(call.args[0], name.rpartition(".")[2], call) if call.args else None
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("mean", "sum") and not name:
            return self._reduced(call.func.value, call.func.attr, call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in SCALE_METHODS and not name:
            inner = call.args[0] if call.func.attr == "scale" and call.args else call.func.value
            return self.read(inner, depth)
        return self._loss_of_criterion(call, depth)

    def _loss_of_parts(self, parts: ast.expr, depth: int) -> Loss | None:
        if isinstance(parts, (ast.List, ast.Tuple)) and parts.elts:
            return self._worst([self.read(element, depth) for element in parts.elts])
        if isinstance(parts, (ast.GeneratorExp, ast.ListComp)):
            return self.read(parts.elt, depth)
        return None

    def _reduced(self, inner: ast.expr, how: str, call: ast.Call) -> Loss:
        """`(p - y).pow(2).mean()`: of what is one number a row or an element."""
        if self._given_dim(call) is not None:
            return Loss(LossKind.UNKNOWN, call)
        return self._mixed([inner], call) or Loss(LossKind.MEAN if how == "mean" else LossKind.SUM, call)

    def _loss_of_rows(self, call: ast.Call) -> Loss | None:
        """What is wrong with a loss whose arguments are not those of one row each."""
        return self._mixed([*call.args, *(keyword.value for keyword in call.keywords)], call)

    def _mixed(self, parts: list[ast.expr], call: ast.Call) -> Loss | None:
        """Whether rows of the batch are put together before the loss is taken."""
        for part in parts:
            if loss := self._find_mixing(part, {call}, 4):
                return loss
        return None

    def _find_mixing(self, node: ast.AST, seen: set[ast.AST], depth: int) -> Loss | None:
        for inner in ast.walk(node):
            if inner in seen:
                return None  # `loss = loss.mean()`
            if self._compares_rows(inner):
                return Loss(LossKind.PAIRS, inner)
            if self._reduces_rows(inner):
                return Loss(LossKind.UNKNOWN, inner)
            for value in self._values(inner) if depth and isinstance(inner, ast.Name) else []:
                if value not in seen and (loss := self._find_mixing(value, seen, depth - 1)):
                    return loss
        return None

    def _compares_rows(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.MatMult)
        if not isinstance(node, ast.Call):
            return False
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return self.program.scopes.name(node.func) in PAIRS or method in PAIR_METHODS

    def _reduces_rows(self, node: ast.AST) -> bool:
        """`out.mean()`, `out.std(0)`, another loss: one number of the whole batch."""
        if not isinstance(node, ast.Call) or node in self.forwards:
            return False
        name = self.program.scopes.name(node.func) or ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        losses = [node] if name in FUNCTIONS else self._losses(node)
        if losses:
            return any(self._by_reduction(made) is not LossKind.UNKNOWN for made in losses)
        reduces = name in REDUCING or not name and method in REDUCING_METHODS
        return reduces and literal(self._given_dim(node)) in (None, 0)

    def _losses(self, call: ast.Call) -> list[ast.Call]:
        """The losses of torch that a call may run: `nn.NLLLoss()` of `self.criterion(x, y)`."""
        makers = [
            before_moves(origin) for origin in origins(self.facts, call.func) if isinstance(origin, ast.Call)
        ]
        return [maker for maker in makers if self.program.scopes.name(maker.func) in CLASSES]

    def _given_dim(self, call: ast.Call) -> ast.expr | None:
        given = next((keyword.value for keyword in call.keywords if keyword.arg in ("dim", "axis")), None)
        is_method = self.program.scopes.name(call.func) is None
        rest = call.args[0 if is_method else 1 :]
        return given or (rest[0] if rest else None)

    def _by_reduction(self, call: ast.Call) -> LossKind:
        """What the arguments of a loss of torch make of it."""
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        reduction = literal(given.get("reduction"))
        averages = [literal(given[option]) for option in ("size_average", "reduce") if option in given]
        if reduction == "none" or reduction is None and "reduction" in given or None in averages:
            return LossKind.UNKNOWN
        if reduction == "sum" or False in averages:
            return LossKind.SUM
        name = (self.program.scopes.name(call.func) or "").lower()
        is_classes = "crossentropy" in name or "cross_entropy" in name or "nll" in name
        counts = {"weight", "ignore_index"} & given.keys()
        return LossKind.WEIGHTED if is_classes and counts and "binary" not in name else LossKind.MEAN

    def _loss_of_criterion(self, call: ast.Call, depth: int) -> Loss | None:
        """`criterion(outputs, targets)`: a loss of torch, or of the project, under a name."""
        makers = [origin for origin in origins(self.facts, call.func) if isinstance(origin, ast.Call)]
        losses: list[Loss] = []
        for made in makers:
            made = before_moves(made)
            name = self.program.scopes.name(made.func)
            if name in CLASSES and (mixed := self._loss_of_rows(call)):
                losses.append(mixed)
                continue
            if name in CLASSES:
                kind = self._by_reduction(made)
                if name and "NLL" not in name and "CrossEntropy" not in name or made.args == []:
                    losses.append(Loss(kind, made))
                else:
                    losses.append(
                        Loss(LossKind.WEIGHTED if kind is LossKind.MEAN else kind, made)
                    )  # weight by position
                continue
            owner = self.program.scopes.definition(made.func)
            forward = method_of(self.program, owner, "forward") if isinstance(owner, ast.ClassDef) else None
            losses.append(self._loss_of_function(forward, depth) if forward else Loss(LossKind.UNKNOWN, call))
        losses += [
            self._loss_of_function(function, depth)
            for origin in origins(self.facts, call.func)
            for function in self._functions(origin)
        ]
        return self._worst(losses) if losses else None

    def _functions(self, node: ast.expr) -> Iterator[Function]:
        home = self.facts.modules.home.get(node)
        if home is None:
            return
        definition = self.facts.modules.definition(home, node)
        if definition and isinstance(definition[1], Function):
            yield definition[1]
        elif isinstance(node, ast.Attribute):
            yield from (
                function
                for _, function in self.facts.modules.graph.means(home, node)
                if isinstance(function, Function)
            )

    def _loss_of_function(self, function: Function, depth: int) -> Loss:
        returns = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value and self.program.scopes.function(node) is function
        ]
        losses = [self.read(returned, depth) for returned in returns]
        return self._worst(losses) if losses else Loss(LossKind.UNKNOWN, function)

    # --- names

    def _loss_of_name(self, node: ast.Name | ast.Attribute, depth: int) -> Loss | None:
        values = self._values(node)
        parts = [value for value in values if not isinstance(value, ast.Constant) and value is not node]
        if not parts:
            return None
        losses = []
        for part in parts:
            if part in self.busy:
                continue  # loss = loss + penalty
            losses.append(self.read(part, depth))
        return self._worst(losses) if losses else None

    def _values(self, node: ast.expr) -> list[ast.expr]:
        """All that a name is given: by assignments, `+=`, tuples, and as an argument."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return []
        return values_of(self.facts).get(self.program.variable(node), [])


def before_moves(made: ast.Call) -> ast.Call:
    """`CrossEntropyLoss().cuda()`: the criterion itself."""
    while (
        isinstance(made.func, ast.Attribute)
        and made.func.attr in SCALE_METHODS
        and isinstance(made.func.value, ast.Call)
    ):
        made = made.func.value
    return made
