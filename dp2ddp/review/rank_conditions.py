"""Which ranks come to a place in a script: one alone, all for certain, or nobody knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from dp2ddp.codemod.model.nodes import FUNCTIONS, NAMED_FUNCTIONS
from dp2ddp.review.helper_calls import helper_of
from dp2ddp.review.names import MAKES_GROUP
from dp2ddp.review.own_file import OwnFile, Variable, literal
from dp2ddp.review.sites import Sites, statements_before

RANK = re.compile(r"(?:^|_)rank$", re.IGNORECASE)
NAMES_RANK = re.compile(
    r"rank|is_main|is_master|is_primary|is_chief|is_leader|master_proc|main_proc", re.IGNORECASE
)
# Words in a condition that may make it true on one rank only.
PERHAPS_RANK = re.compile(
    r"rank|main|master|local|primary|dist|world|gpu|node|chief|leader|zero|proc|coordinator|device|cuda|root",
    re.IGNORECASE,
)
ONE_RANK = re.compile(
    r"^(is_main_process|is_main|is_master|is_rank_?(zero|0)|is_main_proc|is_primary|is_global_master|master_process)$"
)
HARMLESS_DECORATORS = {
    *("staticmethod", "classmethod", "torch.no_grad", "torch.enable_grad", "torch.inference_mode"),
    "torch.distributed.elastic.multiprocessing.errors.record",
}


class RankConditions:
    """What the conditions around the places of one file say of ranks."""

    def __init__(self, file: OwnFile, sites: Sites) -> None:
        self.file, self.module = file, file.module
        self.sites = sites

    def is_rank(self, node: ast.AST) -> bool:
        """Whether an expression is the number of a rank: `rank`, `args.local_rank`, `dist.get_rank()`."""
        if isinstance(node, ast.Call):
            name = self.module.name(node.func) or ""
            if name == "builtins.int" and len(node.args) == 1:
                return self.is_rank(node.args[0])
            if name in ("os.getenv", "os.environ.get"):
                return bool(node.args) and self._is_rank_text(node.args[0])
            word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return word in ("get_rank", "get_local_rank", "get_global_rank")
        if isinstance(node, ast.Subscript):
            return self._is_rank_text(node.slice)
        return bool(RANK.search(_word(node))) or self._is_given_as_rank(node)

    def _is_given_as_rank(self, node: ast.AST) -> bool:
        """Whether a name of another kind is what the process group is told as this process's rank."""
        return isinstance(node, ast.Name) and self.file.variable(node) in self._given_as_rank

    @cached_property
    def _given_as_rank(self) -> set[Variable]:
        given = (group.argument(4, "rank") for group in self.file.calls_of(MAKES_GROUP))
        return {self.file.variable(node) for node in given if isinstance(node, ast.Name)}

    @staticmethod
    def _is_rank_text(node: ast.AST) -> bool:
        return RANK.search(_text(node)) is not None

    def means_one_rank(self, test: ast.AST) -> bool:
        """Whether a condition is true on one rank (of a node) only: `rank == 0`, `is_main_process()`."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return self._is_rank_and_number(left, right) or self._is_rank_and_number(right, left)
            case ast.Compare(left=left, ops=[ast.In()], comparators=[right]):
                return self.is_rank(left) and _names_one_rank(right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.is_rank(operand) or self.means_all_others(operand)
            case ast.BoolOp(op=ast.And(), values=values):
                return any(map(self.means_one_rank, values))
            case ast.BoolOp(op=ast.Or(), values=values):  # `not distributed or rank == 0`
                alone = [value for value in values if self.means_one_rank(value)]
                others = [value for value in values if value not in alone]
                return bool(alone) and len(set(map(_number_of, alone))) == 1 and all(map(_is_not, others))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return bool(ONE_RANK.match(name))
            case ast.Attribute(attr=name):
                return bool(ONE_RANK.match(name))
            case ast.Name(id=name):
                return bool(ONE_RANK.match(name)) or self._is_flag_of_one_rank(test)
        return False

    def _is_flag_of_one_rank(self, flag: ast.Name) -> bool:
        """`saves = rank == 0`, and nothing else is assigned to it."""
        values = self.file.values(flag)
        return bool(values) and all(
            isinstance(value, (ast.Compare, ast.BoolOp, ast.Call)) and self.means_one_rank(value)
            for value in values
        )

    def means_all_others(self, test: ast.AST) -> bool:
        """Whether a condition is true on all ranks but one: `rank != 0`, `rank`, `rank > 0`."""
        match test:
            case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
                return self._is_rank_and_number(left, right)
            case ast.Compare(left=left, ops=[ast.Gt()], comparators=[ast.Constant(value=0)]):
                return self.is_rank(left)
            case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
                return self.is_rank(left) and _names_one_rank(right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.is_rank(operand) and self.means_one_rank(operand)
            case ast.Name() | ast.Attribute():
                return self.is_rank(test)
        return False

    def _is_rank_and_number(self, rank: ast.AST, number: ast.AST) -> bool:
        is_number = isinstance(number, ast.Constant) and isinstance(number.value, int)
        return is_number and self.is_rank(rank)

    def asks_now(self, test: ast.AST) -> bool:
        """Whether a condition asks which rank this is, now: torch, the helpers or torchrun's variables.

        `args.local_rank == 0` need not: in a converted script nobody may set it.
        """
        return any(self._is_asked(node) for node in ast.walk(test))

    def _is_asked(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            name = self.module.name(node.func) or ""
            if name == "torch.distributed.get_rank" or helper_of(self.file, node.func) == "own_rank":
                return True
            return (
                name in ("os.getenv", "os.environ.get")
                and bool(node.args)
                and _is_set_by_torchrun(node.args[0])
            )
        if isinstance(node, ast.Subscript):
            return self.module.name(node.value) == "os.environ" and _is_set_by_torchrun(node.slice)
        if not isinstance(node, ast.Name):
            return False
        values = self.file.values(node)
        return bool(values) and all(value is not None and self.asks_now(value) for value in values)

    def one_rank_condition(self, node: ast.AST) -> ast.If | None:
        """The `if` by which only one rank comes to a node, within its function."""
        inner = node
        for parent in self.module.around(node):
            if isinstance(parent, FUNCTIONS):
                return self._returned_before(parent, inner)
            if isinstance(parent, ast.If):
                if inner in parent.body and self.means_one_rank(parent.test):
                    return parent
                if inner in parent.orelse and self.means_all_others(parent.test):
                    return parent
            if early := self._returned_before(parent, inner):
                return early
            inner = parent
        return None

    def _returned_before(self, parent: ast.AST, inner: ast.AST) -> ast.If | None:
        """`if rank != 0: return`, further up in the same block."""
        return next(
            (
                statement
                for statement in statements_before(parent, inner)
                if isinstance(statement, ast.If)
                and isinstance(statement.body[-1], ast.Return)
                and self.means_all_others(statement.test)
            ),
            None,
        )

    def runs_on_all(self, node: ast.AST) -> bool:
        """Whether it is certain that every rank comes to a node: nothing before it may ask for a rank."""
        return self._on_all_ranks(node, set())

    def _on_all_ranks(self, node: ast.AST, seen: set[ast.AST]) -> bool:
        inner = node
        for parent in self.module.around(node):
            if self._may_choose_ranks(parent, inner):
                return False
            if isinstance(parent, ast.Lambda):
                return False
            if isinstance(parent, NAMED_FUNCTIONS):
                return self._is_called_on_all(parent, seen)
            inner = parent
        return not self.sites.spawns  # what starts the ranks is none of them

    def _is_called_on_all(self, function: ast.FunctionDef | ast.AsyncFunctionDef, seen: set[ast.AST]) -> bool:
        if function in seen:
            return True
        seen.add(function)
        names = (
            (self.module.name(node.func if isinstance(node, ast.Call) else node) or "?")
            for node in function.decorator_list
        )
        if any(name.removeprefix("builtins.") not in HARMLESS_DECORATORS for name in names):
            return False
        sites = self.sites.sites_of(function)
        if self.sites.is_started(function):
            return True
        if any(map(self._is_handed_to_helper, sites)):  # `run_on_rank0(save, net)`
            return False
        return bool(sites) and all(self._on_all_ranks(site, seen) for site in sites)

    def _is_handed_to_helper(self, site: ast.AST) -> bool:
        call = self.module.parents[site]
        return isinstance(call, ast.Call) and site is not call.func and helper_of(self.file, call.func) != ""

    def _may_choose_ranks(self, parent: ast.AST, inner: ast.AST) -> bool:
        """Whether a node around another lets only some ranks come to it, or may."""
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and inner is not parent.test:
            if self.may_ask(parent.test):
                return True
        elif isinstance(parent, ast.BoolOp) and inner is not parent.values[0]:
            return True
        elif isinstance(parent, (ast.With, ast.AsyncWith)):
            if any(self.may_ask(item.context_expr) for item in parent.items):
                return True
        elif (
            isinstance(parent, (ast.ExceptHandler, ast.Match))
            or isinstance(parent, ast.For)
            and any(isinstance(node, ast.IfExp) and self.may_ask(node.test) for node in ast.walk(parent.iter))
        ):
            return True
        return any(
            self.may_ask(statement.test)
            for statement in statements_before(parent, inner)
            if isinstance(statement, ast.Assert)
            or (
                isinstance(statement, ast.If)
                and isinstance(statement.body[-1], (ast.Return, ast.Continue, ast.Raise))
            )
        )

    def may_ask(self, expression: ast.AST) -> bool:
        """Whether an expression may differ from rank to rank on purpose: by its words, or by what they were made of."""
        names = [_word(node) for node in ast.walk(expression)]
        texts = [_text(node) for node in ast.walk(expression)]
        if any(map(PERHAPS_RANK.search, names)) or any(map(NAMES_RANK.search, texts)):
            return True
        return any(self._comes_from_rank(word, frozenset()) for word in (*names, *texts) if word)

    def _comes_from_rank(self, word: str, seen: frozenset[str]) -> bool:
        """Whether anything that a name of this word may stand for is a rank, or was chosen by one."""
        if word in seen or word in self._without_rank:
            return False
        if word in self._indices:
            return True
        for value in self._assigned_to(word):
            for node in _walk_without_devices(value):
                inner = _word(node) or _text(node)
                if inner and (NAMES_RANK.search(inner) or self._comes_from_rank(inner, seen | {word})):
                    return True
        self._without_rank.add(word)
        return False

    @cached_property
    def _without_rank(self) -> set[str]:
        """Words that were followed to their ends."""
        return set()

    @cached_property
    def _indices(self) -> set[str]:
        """The names of first parameters of functions that are started as processes: they are counted."""
        functions = [function for function in self._functions if self.sites.is_started(function)]
        return {function.args.args[0].arg for function in functions if function.args.args} | {
            name for _, name in self._given_as_rank
        }

    @cached_property
    def _functions(self) -> list[ast.FunctionDef]:
        return [node for node in self.module.nodes(ast.FunctionDef) if isinstance(node, ast.FunctionDef)]

    def _assigned_to(self, word: str) -> Iterator[ast.AST]:
        """What is assigned to a name or an attribute of this word, anywhere in the file, and the conditions of that.

        Parameters get what their function is called with.
        """
        for mention in self.module.by_word.get(word, ()):
            if isinstance(mention.ctx, ast.Store):
                statement = self.module.statement(mention)
                value = _value_for(mention, statement)
                if value is not None:
                    yield value
                    yield from self._conditions_of(statement)
        for keyword in self.module.nodes(ast.keyword):
            if isinstance(keyword, ast.keyword) and keyword.arg == word:
                yield keyword.value
        yield from self._items_of(word)
        for function in self._functions:
            if function.name == word:  # a property, or what decides: by its results, or by its conditions
                parts = (
                    getattr(node, "value", None) or getattr(node, "test", None) for node in _results(function)
                )
                yield from (part for part in parts if part is not None)
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            if word in names:
                yield from self.sites.arguments_at(function, names.index(word))

    def _items_of(self, key: str) -> Iterator[ast.AST]:
        """`config["verbose"] = rank == 0`, `{"verbose": rank == 0}`."""
        for node in self.module.nodes(ast.Assign, ast.Dict):
            match node:
                case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name))], value=value) if (
                    name == key
                ):
                    yield value
                case ast.Dict(keys=keys, values=values):
                    yield from (value for name, value in zip(keys, values, strict=True) if _text(name) == key)

    def _conditions_of(self, statement: ast.stmt) -> Iterator[ast.expr]:
        """The tests of the `if`s around a statement, within its function."""
        for parent in self.module.around(statement):
            if isinstance(parent, NAMED_FUNCTIONS):
                return
            if isinstance(parent, ast.If):
                yield parent.test


def _walk_without_devices(value: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression, without those that only say where it is computed: `net.cuda(rank)`, `device_ids`."""
    yield value
    for child in ast.iter_child_nodes(value):
        says_where = isinstance(child, ast.keyword) and child.arg in ("device", "device_ids", "output_device")
        is_moved = (
            isinstance(value, ast.Call) and _word(value.func) in ("cuda", "to") and child is not value.func
        )
        if not says_where and not is_moved:
            yield from _walk_without_devices(child)


def _results(function: ast.FunctionDef) -> Iterator[ast.AST]:
    return (node for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield, ast.If)))


def _value_for(mention: ast.AST, statement: ast.stmt) -> ast.AST | None:
    """What a statement assigns to one of its names: its own part of `rank, world = a, b`."""
    match statement:
        case ast.With(items=items):
            return next((item.context_expr for item in items if item.optional_vars is mention), None)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            if mention in targets and len(targets) == len(values):
                return values[targets.index(mention)]
    return getattr(statement, "value", None)


def _is_set_by_torchrun(name: ast.AST) -> bool:
    return _text(name) in ("RANK", "LOCAL_RANK")


def _names_one_rank(numbers: ast.AST) -> bool:
    """`[0]`, and `[-1, 0]`: -1 stands for a run without ranks."""
    values = literal(numbers)
    if not isinstance(values, (list, tuple, set)):
        return False
    ranks = [value for value in values if isinstance(value, int)]
    return len(ranks) == len(values) and sum(rank >= 0 for rank in ranks) == 1


def _number_of(test: ast.expr) -> int:
    """The rank that a condition of one rank is true on: 0, unless it says another."""
    numbers = [node.value for node in ast.walk(test) if isinstance(node, ast.Constant)]
    return max((number for number in numbers if isinstance(number, int)), default=0)


def _is_not(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _word(node: ast.AST) -> str:
    """The last word of a name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.AST | None) -> str:
    """A text that stands in the code."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
