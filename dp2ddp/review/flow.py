"""Where values of one file go: the variables that they are assigned to, and where these certainly mean them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from dp2ddp.codemod.model.flow import pairs
from dp2ddp.codemod.model.nodes import LOOPS, NAMED_FUNCTIONS, all_from, inside, last_name, stored_names
from dp2ddp.review.own_file import SETTINGS, Mention, OwnFile
from dp2ddp.review.rank_conditions import Condition, RankConditions

UNDER_NO_GRAD = ("torch.no_grad", "torch.inference_mode")
LISTS = re.compile("(?:named_)?(?:parameters|modules|children)")
OPEN_FILE = re.compile(r"buf|stream|^f$|^fp$|file_?obj|handle", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop over a loader: its own, or of a function that gets the loader."""

    node: ast.For
    site: ast.AST | None  # the call of its function that hands the loader to it
    trains: bool
    repeats: bool  # whether it stands in another loop


class Flow:
    """Values, and the mentions of their variables."""

    def __init__(self, file: OwnFile, ranks: RankConditions) -> None:
        self.file, self.module, self.ranks = file, file.module, ranks

    def target(self, value: ast.AST) -> ast.expr | None:
        """What an expression is assigned to, alone; through `.to(device)`, `.cuda()`, `x if y else z`."""
        match self.module.parents.get(value):
            case ast.Attribute(attr="to" | "cuda" | "train") as method:
                call = self.module.parents[method]
                return self.target(call) if isinstance(call, ast.Call) else None
            case ast.IfExp(body=body, orelse=other) as choice:
                model = f"{self.file.text_of(value)}.module"  # `net.module if distributed else net`
                return None if model in map(self.file.text_of, (body, other)) else self.target(choice)
            case ast.Assign() | ast.Tuple() as parent:
                statement = self.module.statement(parent)
                given = pairs(statement) if isinstance(statement, ast.Assign) else ()
                return next((target for target, each in given if each is value), None)
        return None

    def uses(self, value: ast.AST) -> list[Mention]:
        """Where what an expression is assigned to is read."""
        return self.file.reads(self.target(value))

    def stores(self, node: ast.AST) -> list[Mention]:
        """Where the variable of a mention is given something else."""
        found = self.file.mentions(self.file.variable(node), ast.Store, ast.Del)
        return [each for each in found if not isinstance(self.module.parents[each], ast.AugAssign)]

    # --- what a mention means

    def spread(self, *values: ast.AST) -> set[ast.AST]:
        """What certainly means one of these values: its name behind it, other names for it, parameters that get it."""
        return set(all_from(values, self._means_next)).difference(values)

    def not_handed(self, mentions: set[ast.AST]) -> set[ast.AST]:
        """Those that are no parameters, nor made of such: what a function is handed, is looked at from its calls."""
        received = {use for each in mentions for use in self.received(each)}
        return mentions - self.spread(*received) - received

    def _means_next(self, value: ast.AST) -> Iterator[ast.AST]:
        yield from (use for use in self.uses(value) if self.is_behind(use, value))
        for use in self.received(value):
            is_same = not any(store.lineno < use.lineno for store in self.stores(use))
            if is_same and self._holds_where(use, value):
                yield use

    def read(self, target: ast.AST | None, source: ast.AST) -> Iterator[Mention]:
        """Where a target is read that a source has given something, and no other statement anew."""
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        return (use for use in self.file.reads(target) if self.may_mean(use, source))

    def may_mean(self, use: ast.AST | None, source: ast.AST) -> bool:
        """Whether a mention may have what a source gives its variable: no other certainly does, or its own class."""
        own, maker = self.module.statement(source), self._class_of(source)
        if not isinstance(use, (ast.Name, ast.Attribute)):
            return True
        for store in self.stores(use):
            other, home = self.module.statement(store), self._class_of(use)
            is_loop = isinstance(other, ast.For) and other in self.module.around(use)
            is_of_class = home is not maker and self._class_of(store) is home
            is_before = other is own or other.lineno < own.lineno <= use.lineno
            if is_of_class or not is_before and (is_loop or self.is_same(store, use)):
                return False
        return True

    def _stays(self, use: Mention, maker: ast.AST) -> bool:
        """Whether nothing between a node and a mention, but for other branches, gives the mention something else."""
        first, own = self.module.statement(maker), self.module.statement(use)  # `x = f(x)` reads first
        function = self.file.function_of(maker)
        is_beside = self.file.function_of(use) is function
        choices = (place for place, _, _ in self._choices(maker))
        others = {each for place in choices for each in self.file.other_branch(place, maker)}
        for store in self.stores(use):
            is_between = first.lineno < store.lineno and (store.lineno < own.lineno or not is_beside)
            is_elsewhere = not is_beside and self.file.function_of(store) is not function
            if (is_between or is_elsewhere) and others.isdisjoint(self.module.around(store)):
                return False
        return True

    def is_same(self, maker: ast.AST, use: Mention) -> bool:
        """Whether a mention has for certain what a node above it, under no condition, has given or meant."""
        is_beside = self.file.function_of(maker) is self.file.function_of(use)
        return is_beside and self.module.statement(maker) in self._above(use) and self._stays(use, maker)

    def is_behind(self, node: Mention, maker: ast.AST) -> bool:
        """Whether a mention is reached only behind another node, and its variable is the same still.

        A condition around that node is taken to hold, as `if distributed:` does on ranks.
        """
        return self._comes_behind(node, maker) and self._stays(node, maker) and self._holds_where(node, maker)

    def _comes_behind(self, node: ast.AST, maker: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a node is reached only behind another one, where it stands or where its function is called.

        Behind `self.model` of `__init__`, not in a loop or the like, come all other methods of its class.
        """
        function, own, levels = self.file.function_of(node), self._class_of(node), self._levels(maker)
        if function is (first := self.file.function_of(maker)):
            return not self._above(node).isdisjoint(levels)
        if own is not None:
            is_init = getattr(first, "name", "") == "__init__" and own is self._class_of(maker)
            return is_init and not set(getattr(first, "body", ())).isdisjoint(levels)
        sites = [] if function in seen else self.file.sites_of(function)
        return bool(sites) and all(self._comes_behind(each, maker, seen | {function}) for each in sites)

    def _above(self, node: ast.AST) -> set[ast.stmt]:
        """The statements above a node in its block, and in the blocks around."""
        around = [each for each in (node, *self.module.around(node)) if isinstance(each, ast.stmt)]
        blocks = zip(around, map(self.module.block_of, around), strict=True)
        return {above for each, block in blocks for above in block[: block.index(each)]}

    def _levels(self, maker: ast.AST) -> list[ast.stmt]:
        """The statement of a node, and those around it that run it under a condition at most."""
        statement = self.module.statement(maker)
        around = takewhile(lambda each: isinstance(each, (ast.If, ast.With)), self.module.around(statement))
        return [statement, *around]  # type: ignore[list-item]

    def _choices(self, node: ast.AST) -> list[Condition]:
        return [each for each in self.ranks.conditions(node) if each[2] is not None]

    def _holds_where(self, node: Mention, maker: ast.AST) -> bool:
        """Whether what was made, on ranks, is there where a mention stands: not under `if not distributed:`."""
        made = self._choices(maker)
        tests = {(self.file.text_of(test), holds) for _, test, holds in made}
        words = {last_name(each) for _, test, _ in made for each in ast.walk(test)} - {"", *SETTINGS}
        words.add(last_name(node))  # `isinstance(net, DistributedDataParallel)`
        return not any(
            not words.isdisjoint(map(last_name, ast.walk(test)))
            or self.ranks.may_ask(test)
            and not (self.ranks.chooses(test, True) or self.ranks.chooses(test, False))
            for _, test, holds in self._choices(node)
            if (self.file.text_of(test), holds) not in tests
        )

    def later(self, node: ast.AST) -> Iterator[ast.AST]:
        """What may run behind a node: what follows it, the loops around it, and the same where its function is called.

        The whole file, where nothing of it calls the function.
        """
        for place in all_from([node], self._called_at):
            yield from [place] if isinstance(place, ast.Module) else ()
            for parent in (place, *self.file.within(place)):
                yield from self.module.behind(parent) if isinstance(parent, ast.stmt) else ()
                yield from [parent] if isinstance(parent, LOOPS) else ()

    def _called_at(self, node: ast.AST) -> Sequence[ast.AST]:
        function = self.file.function_of(node)
        return [] if isinstance(function, ast.Module) else self.file.sites_of(function) or [self.module.tree]

    def is_open_file(self, node: ast.AST) -> bool:
        """Whether an expression is a file object, `io.BytesIO()` say, and no path: by its maker, or its name."""
        is_made = any(
            (each.name or "").startswith(("io.", "builtins.open")) for each in self.file.made_by(node)
        )
        return is_made or isinstance(node, ast.Name) and OPEN_FILE.search(node.id) is not None

    def _class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return self.module.enclosing(node, ast.ClassDef)

    def received(self, value: ast.AST) -> list[Mention]:
        """Where a function of the file, that is called with a value, names its parameter of it."""
        given = self.file.given(self.file.part_of(value))
        return [use for taken, each in given if each is value for use in self.file.mentions(taken, ast.Load)]

    def wholes(self, part: ast.AST | None) -> Iterator[ast.AST]:
        """An expression, and what it is part of: `net` of `net.fc[0]`, and of `p` in `for p in net.parameters()`."""
        while part is not None:
            yield part
            match part:
                case ast.Attribute(value=whole) | ast.Subscript(value=whole):
                    part = whole
                case _:
                    part = self._listed_by(part)

    def _listed_by(self, node: ast.AST) -> ast.expr | None:
        """`net`, where a name is what a loop over its parameters or layers goes through."""
        for loop in self.file.around(node, ast.For) if isinstance(node, ast.Name) else ():
            match loop.iter:
                case ast.Call(func=ast.Attribute(value=whole, attr=listed)) if LISTS.fullmatch(listed):
                    if last_name(node) in stored_names(loop.target):
                        return whole
        return None

    # --- loops

    def loops_over(self, value: ast.AST) -> Iterator[Loop]:
        """The loops that run through a value, by whatever name, or in functions that get it."""
        pending: list[tuple[ast.AST, ast.AST | None, bool]] = [(value, None, False)]
        seen: set[ast.AST] = set()
        while pending:
            use, site, is_repeated = pending.pop()
            if use in seen:
                continue
            seen.add(use)
            whole, is_repeated = self._iterated(use), is_repeated or self._repeats(use)
            loop = self.module.parents[whole]
            if isinstance(loop, ast.For) and whole is loop.iter:
                yield Loop(loop, site, self.trains_in(loop), is_repeated)
            pending += [(each, site, is_repeated) for each in self.read(self.target(whole), whole)]
            sites = self.file.sites_of(self.file.function_of(loop)) if isinstance(loop, ast.Return) else []
            pending += [(self.module.parents[each], site, is_repeated) for each in sites]
            call = self.module.enclosing(use, ast.Call, ast.stmt)
            pending += [(each, call, is_repeated) for each in self.received(use)]

    def _iterated(self, use: ast.AST) -> ast.AST:
        """`enumerate(tqdm(use))`: what a loop goes through, unless a function of the file gets it."""
        whole, parent = use, self.module.parents[use]
        while isinstance(parent, ast.keyword) or isinstance(parent, ast.Call) and whole is not parent.func:
            function = self.file.callee(parent)
            if function and function.name != "__init__":
                break
            whole, parent = parent, self.module.parents[parent]
        return whole

    def _repeats(self, use: ast.AST) -> bool:
        """Whether a use stands in a loop that is not the loop over it, here or where its function is called."""
        loops = (each for each in self.file.within(use) if isinstance(each, LOOPS))
        around = (each for each in loops if isinstance(each, ast.While) or use not in ast.walk(each.iter))
        sites = self.file.sites_of(self.file.function_of(use))
        return any(around) or any(map(self.file.loop_around, sites))

    # --- gradients

    def is_without_gradient(self, node: ast.AST) -> bool:
        """Whether a node stands under no_grad, by a `with` or by a decorator of its function."""
        items = (item for each in self.file.around(node, ast.With) for item in each.items)
        functions = (each for each in self.module.around(node) if isinstance(each, NAMED_FUNCTIONS))
        decorators = (decorator for each in functions for decorator in each.decorator_list)
        around = (*(item.context_expr for item in items), *decorators)
        return any(self.module.name(getattr(each, "func", each)) in UNDER_NO_GRAD for each in around)

    def runs(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node, and the functions of the file that are called in it, and so on."""
        return all_from([node], lambda each: filter(None, map(self.file.callee, inside(each, ast.Call))))

    def trains_in(self, node: ast.AST) -> bool:
        """Whether something is differentiated inside a node, or in a function of the file that is called there."""
        return any(
            each.attr == "backward" for body in self.runs(node) for each in inside(body, ast.Attribute)
        )
