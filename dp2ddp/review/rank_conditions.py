"""Which ranks come to a place in a script: one alone, some, all for certain, or nobody knows."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from typing import Any

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.nodes import FUNCTIONS, NAMED_FUNCTIONS, all_from, last_name, places
from dp2ddp.codemod.model.scopes import Binds, settings
from dp2ddp.review.own_file import Mention, OwnFile, Variable, literal, walk_without

MAKES_GROUP = "torch.distributed.init_process_group"
RANK = re.compile(  # no `lora_rank`, no `matrix_rank`
    r"(?i)(?:^_*|(?:^|_)(?:local|global|node|host|machine|proc|process|dist|distributed|ddp|dp|data_parallel|world|worker"
    r"|gpu|device|cur|current|my|own|self|this|mpi|trainer|group|shard)_)rank$"
)
RANK_VARIABLE = re.compile(r"(?:^|_)RANK$")  # `OMPI_COMM_WORLD_RANK`
NAMES_RANK = re.compile("(?i)rank|is_main|is_master|is_primary|is_chief|is_leader|master_proc|main_proc")
# Words in a condition that may make it true on one rank only.
PERHAPS_RANK = re.compile(
    r"rank|main|master|local|primary|dist|world|gpu|node|chief|leader|zero|proc|coordinator|device|cuda|root|ddp|parallel",
    re.IGNORECASE,
)
ONE_RANK = re.compile(
    r"^(is_main_process|is_main|is_master|is_rank_?(zero|0)|is_main_proc|is_primary|is_global_master|master_process)$"
)
GET_RANK = ("get_rank", "get_local_rank", "get_global_rank")
NO_RANK = (0, -1)  # what stands for one, in a run without ranks
OF_TORCHRUN = ("RANK", "LOCAL_RANK")
ALIKE = ("torch.cuda.is_available", "torch.cuda.amp.autocast")
ENVIRONMENT = ("os.getenv", "os.environ.get")
HARMLESS_DECORATORS = words(
    "builtins.staticmethod builtins.classmethod torch.no_grad torch.enable_grad torch.inference_mode",
    "torch.distributed.elastic.multiprocessing.errors.record",
)
RANKS = (*range(16), 1 << 20, 1 << 21)  # that a condition is tried with: `rank > 15` is true on several
COMPARES: dict[type, Callable[[Any, Any], bool]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne},
    **{ast.In: lambda one, several: one in several, ast.NotIn: lambda one, several: one not in several},
}
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
MAY_NOT_RUN = (ast.ExceptHandler, ast.Match, ast.Lambda)
SAYS_WHERE = ("device", "device_ids", "output_device")

Condition = tuple[ast.AST, ast.expr, bool | None]  # where, a test, and what that is then; None: anything


@dataclass(frozen=True)
class Ranks:
    """The ranks that come to a place; where neither is true, nobody knows."""

    condition: ast.AST | None = None  # by which one rank (of a node) comes
    test: ast.expr = ast.Constant(True)  # what it asks
    place: ast.AST | None = None  # what stands under it: the node, or the call of its function
    are_some: bool = False  # a condition asks for a rank
    are_all: bool = False

    @property
    def are_one(self) -> bool:
        return self.condition is not None


class RankConditions:
    """What the conditions around the places of one file say of ranks."""

    def __init__(self, file: OwnFile) -> None:
        self.file, self.module = file, file.module
        self._known: dict[ast.AST, Ranks] = {}
        self._are_ranks: dict[ast.AST, bool] = {}
        self._values: dict[tuple[ast.AST | None, int], object] = {}

    def at(self, node: ast.AST) -> Ranks:
        """Which ranks come to a node."""
        if node not in self._known:
            self._known[node] = Ranks()  # of itself, in a circle of calls
            self._known[node] = self._find(node)
        return self._known[node]

    def _find(self, node: ast.AST) -> Ranks:
        conditions = [*self.conditions(node)]
        for condition, test, holds in conditions:
            if holds is not None and self.chooses(test, holds):
                return Ranks(condition, test, node)
        sites = self.file.sites_of(self.file.function_of(node))
        calls = [each for each in map(self.module.parents.get, sites) if isinstance(each, ast.Call)]
        callers = [self.at(each) for each in calls if each.func in sites]
        if sites and len(callers) == len(sites) and all(each.are_one for each in callers):
            return callers[0]
        are_some = any(self.may_ask(test) for _, test, holds in conditions if holds is not None)
        return Ranks(are_some=are_some, are_all=not are_some and self._on_all_ranks(node, set()))

    def others(self, node: ast.AST) -> list[ast.stmt]:
        """What the other ranks run instead, where one alone comes to a node, or all but one."""
        where = self.at(node)
        condition, place = where.condition or self.parting(node), where.place or node
        return self.file.other_branch(condition, place) if condition else []

    def parting(self, node: ast.AST) -> ast.AST | None:
        """The condition in its function that lets some ranks come to a node, and others not."""
        conditions = (each for each, test, _ in self.conditions(node) if len(set(self._told(test))) > 1)
        return next(conditions, None)

    def conditions(self, node: ast.AST) -> Iterator[Condition]:
        """What decides in its function whether a node is come to."""
        for parent, inner in self.module.steps(node):
            match parent:
                case ast.If(test=test, body=body) | ast.While(test=test, body=body) if inner is not test:
                    yield parent, test, inner in body
                case ast.IfExp(test=test, body=first) if inner is not test:
                    yield parent, test, inner is first
                case ast.BoolOp(op=joins, values=values):
                    before = takewhile(lambda each, own=inner: each is not own, values)  # type: ignore[misc]
                    yield from ((parent, each, isinstance(joins, ast.And)) for each in before)
                case ast.With(items=items) | ast.AsyncWith(items=items):
                    yield from ((parent, each.context_expr, None) for each in items)
            for each in self.module.ifs_above(inner):
                if isinstance(each.body[-1], LEAVES):
                    yield each, each.test, False
            if isinstance(parent, FUNCTIONS):
                return

    # --- conditions of one rank

    def is_rank(self, node: ast.AST) -> bool:
        """Whether an expression is the number of a rank: `args.local_rank`, `dist.get_rank()`, or made of them."""
        if node not in self._are_ranks:
            self._are_ranks[node] = False  # of itself, in a circle of names
            self._are_ranks[node] = self._is_rank(node)
        return self._are_ranks[node]

    def _is_rank(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=function) if last_name(function) in GET_RANK:
                return True
            case ast.Name() if self.file.variable(node) in self._named:
                return True
            case ast.Name() if any(each.how is Binds.ITEM for each in self.module.bindings(node)):
                return False  # `for rank in [1, 4, 8]`
            case ast.BinOp(left=inner, op=ast.Mod(), right=count) if literal(count) is None:
                return self.is_rank(inner)  # `rank % gpus_of_node`
        others = [each for each in self.file.all_values(node) if literal(each) not in NO_RANK]
        if others and all(map(self.is_rank, others)):
            return True
        key = self._key(node)
        return (RANK.search(last_name(node) or key) or RANK_VARIABLE.search(key)) is not None

    def _key(self, node: ast.AST) -> str:
        """`RANK` of `os.environ["RANK"]` and `os.getenv("RANK")`, `rank` of `config["rank"]`."""
        match node:
            case ast.Subscript(slice=key):
                return _text(key)
            case ast.Call(func=function, args=[key, *_]) if self.module.name(function) in ENVIRONMENT:
                return _text(key)
        return ""

    @cached_property
    def _named(self) -> set[Variable]:
        """The names of any kind that the process group is told as this process's rank, or that processes begin with."""
        given = (group.argument(4, "rank") for group in self.file.calls_of(MAKES_GROUP))
        told = {self.file.variable(node) for node in given if isinstance(node, ast.Name)}
        firsts = ((function, each.arg) for function in self.file.started for each in places(function)[:1])
        return told.union(firsts)  # `mp.spawn` counts its processes in the first parameter

    def has_rank(self, expression: ast.AST) -> bool:
        """Whether the number of a rank stands in an expression, for certain, or in all that a name in it stands for."""
        return self._has(expression, self.is_rank)

    def asks_now(self, test: ast.AST) -> bool:
        """Whether a condition asks which rank this is, now: torch, the helpers or torchrun's variables.

        `args.local_rank == 0` need not: in a converted script nobody may set it.
        """
        return self._has(test, self._is_asked)

    def _is_asked(self, node: ast.AST) -> bool:
        function = node.func if isinstance(node, ast.Call) else node
        is_torchs = self.module.name(function) == "torch.distributed.get_rank"
        return is_torchs or self.file.helper(function) == "own_rank" or self._key(node) in OF_TORCHRUN

    def _has(
        self, expression: ast.AST, is_one: Callable[[ast.AST], bool], seen: frozenset[ast.AST] = frozenset()
    ) -> bool:
        for node in walk_without(expression, _is_owner):
            if is_one(node):
                return True
            values = self.file.all_values(node) if isinstance(node, Mention) and node not in seen else []
            if values and all(self._has(each, is_one, seen | {node}) for each in values):
                return True
        return False

    def chooses(self, test: ast.AST, holds: bool) -> bool:
        """Whether a condition is true (or false) on one rank (of a node) at most."""
        return sum(each is not (not holds) for each in self._told(test)) == 1

    def _told(self, test: ast.AST) -> list[bool | None]:
        """Whether a condition is true on each rank; None where nobody can say."""
        values = (self._value(test, rank) for rank in RANKS)
        return [None if value is None else bool(value) for value in values]

    def _value(self, node: ast.AST | None, rank: int) -> object:
        """What an expression is on a rank; None where nobody can say."""
        if (node, rank) not in self._values:
            self._values[node, rank] = None  # of itself, in a circle of names
            self._values[node, rank] = self._find_value(node, rank)
        return self._values[node, rank]

    def _find_value(self, node: ast.AST | None, rank: int) -> object:
        match node:
            case ast.Compare(left=left, ops=[compared], comparators=[right]):
                sides = self._value(left, rank), self._value(right, rank)
                return _compare(compared, *sides) if None not in sides else None
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                value = self._value(inner, rank)
                return None if value is None else not value
            case ast.BoolOp(op=joins, values=parts):
                decides, values = isinstance(joins, ast.Or), [self._value(each, rank) for each in parts]
                if any(each is not None and bool(each) is decides for each in values):
                    return decides
                unknown = [part for part, each in zip(parts, values, strict=True) if each is None]
                are_denied = decides and unknown != parts  # `not distributed or rank == 0`: on ranks, not so
                are_denied = are_denied and all(isinstance(each, ast.UnaryOp) for each in unknown)
                return not decides if are_denied or not unknown else None
            case ast.Call(func=named) | (ast.Name() | ast.Attribute() as named) if ONE_RANK.match(
                last_name(named)
            ):
                return rank == 0
        if node is not None and self.is_rank(node):
            return rank
        if isinstance(node, Mention):  # `saves = rank == 0`
            values = [self._value(each, rank) for each in self.file.all_values(node)]
            return values[0] if values and all(each == values[0] for each in values) else None
        return _number(literal(node))

    # --- all ranks

    def _on_all_ranks(self, node: ast.AST, seen: set[ast.AST]) -> bool:
        """Whether it is certain that every rank comes to a node: nothing before it may ask for a rank."""
        function = self.file.function_of(node)
        if any(isinstance(each, MAY_NOT_RUN) for each in (*self.file.within(node), function)):
            return False
        if any(self.may_ask(test) for _, test, _ in self.conditions(node)):
            return False
        if isinstance(function, NAMED_FUNCTIONS):
            return self._is_called_on_all(function, seen)
        return not self.file.spawns  # what starts the ranks is none of them

    def _is_called_on_all(self, function: ast.FunctionDef | ast.AsyncFunctionDef, seen: set[ast.AST]) -> bool:
        if function in seen:
            return True
        seen.add(function)
        called = (getattr(each, "func", each) for each in function.decorator_list)
        if not HARMLESS_DECORATORS.issuperset(map(self.module.name, called)):
            return False
        if function in self.file.started:
            return True
        sites = self.file.sites_of(function)
        if any(map(self._is_handed_to_helper, sites)):  # `run_on_rank0(save, net)`
            return False
        owner = self.module.parents[function]  # a hook that one rank has
        made = self.file.mentions_of(owner) if isinstance(owner, ast.ClassDef) else []
        return bool(sites) and all(self._on_all_ranks(each, seen) for each in (*sites, *made))

    def _is_handed_to_helper(self, site: ast.AST) -> bool:
        call = self.module.parents[site]
        return isinstance(call, ast.Call) and site is not call.func and self.file.helper(call.func) != ""

    # --- what is made of ranks

    def may_ask(self, expression: ast.AST) -> bool:
        """Whether an expression may differ from rank to rank on purpose: by its words, or by what they were made of."""
        nodes = [*walk_without(expression, self._is_alike)]
        names, texts = {last_name(node) for node in nodes}, {_text(node) for node in nodes}
        is_named = any(map(PERHAPS_RANK.search, names)) or any(map(NAMES_RANK.search, texts))
        return is_named or not self._made_of_ranks.isdisjoint(names | texts)

    def _is_alike(self, part: ast.AST, whole: ast.AST) -> bool:
        """Whether a part of an expression says the same on all ranks, whatever its words are."""
        return isinstance(part, ast.Attribute) and self.module.name(part) in ALIKE

    @cached_property
    def _made_of_ranks(self) -> set[str]:
        """The words of whatever may be made of a rank, or was chosen by one, anywhere in the file."""
        made: dict[str, set[str]] = {}
        for word, value in chain(self._settings(), self._arguments(), self._results()):
            for node in walk_without(value, _says_where) if value else ():
                made.setdefault(last_name(node) or _text(node), set()).add(word)
        begin = (*filter(NAMES_RANK.search, made), *(name for _, name in self._named))
        return set(all_from(begin, lambda word: made.get(word, set()) - {""})) - {""}

    def _settings(self) -> Iterator[tuple[str, ast.AST | None]]:
        """What names, attributes and items are set to, under which conditions of their function."""
        for node in self.module.nodes(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.withitem):
            tests = [each.test for each in self.file.within(node) if isinstance(each, ast.If)]
            for target, binding in settings(node):
                value = binding.node or binding.whole or getattr(node, "value", None)
                word = _text(target.slice) if isinstance(target, ast.Subscript) else last_name(target)
                yield from ((word, each) for each in (value, *tests) if value)

    def _arguments(self) -> Iterator[tuple[str, ast.AST | None]]:
        """What calls give parameters, by name and by place; `{"path": path}` may be arguments, too."""
        yield from ((each.arg or "", each.value) for each in self.module.all(ast.keyword))
        for table in self.module.all(ast.Dict):
            yield from zip(map(_text, table.keys), table.values, strict=True)
        for function in self.module.all(ast.FunctionDef):
            for site in self.file.sites_of(function):
                call = self.module.parents[site]
                given = self.file.given(call, function) if getattr(call, "func", None) is site else []
                yield from ((name, value) for (_, name), value in given)

    def _results(self) -> Iterator[tuple[str, ast.AST | None]]:
        """What functions and properties return, and by which conditions they decide."""
        for function in self.module.all(ast.FunctionDef):
            for each in ast.walk(function):
                if isinstance(each, (ast.If, ast.Return, ast.Yield)):
                    yield function.name, each.test if isinstance(each, ast.If) else each.value


def _is_owner(part: ast.AST, whole: ast.AST) -> bool:
    """Whether a part of an expression only has what is meant (`run.epoch`), or says where it is computed."""
    is_named = isinstance(part, ast.Name) and isinstance(whole, ast.Attribute)
    return is_named or _says_where(part, whole)


def _says_where(part: ast.AST, whole: ast.AST) -> bool:
    """Whether a part of an expression only says where it is computed: `net.cuda(rank)`, `device_ids=[rank]`."""
    moves = isinstance(whole, ast.Call) and last_name(whole.func) in ("cuda", "to") and part is not whole.func
    return moves or isinstance(part, ast.keyword) and part.arg in SAYS_WHERE


def _compare(compared: ast.cmpop, one: object, other: object) -> bool | None:
    try:
        return COMPARES[type(compared)](one, other)
    except TypeError:
        return None


def _number(value: object) -> object:
    """What a literal is to be compared with a rank: 0 of "0", as the environment says it."""
    if isinstance(value, (list, tuple, set)):
        return tuple(map(_number, value))
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _text(node: ast.AST | None) -> str:
    """A text that stands in the code."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
