"""Where values of one file go: the variables that they are assigned to, and where these certainly mean them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, handed, stored_names
from dp2ddp.review.own_file import Mention, OwnFile, Variable, inside

UNDER_NO_GRAD = ("torch.no_grad", "torch.inference_mode")
LISTS = re.compile("(?:named_)?(?:parameters|modules|children)")
OPEN_FILE = re.compile(r"buf|stream|^f$|^fp$|file_?obj|handle", re.IGNORECASE)


class Flow:
    """Values, and the mentions of their variables."""

    def __init__(self, file: OwnFile) -> None:
        self.file, self.module = file, file.module

    def variable(self, value: ast.AST) -> Variable | None:
        """The variable that an expression is assigned to, alone; through `.to(device)`, `.cuda()`, `x if y else z`."""
        match self.module.parents.get(value):
            case ast.Attribute(attr="to" | "cuda" | "train") as method:
                call = self.module.parents.get(method)
                return self.variable(call) if isinstance(call, ast.Call) else None
            case ast.IfExp() as choice:
                return self.variable(choice)
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
                return self.file.variable(target)
        return None

    def values(self, node: ast.AST | None) -> list[ast.AST]:
        """The expressions that a name may stand for, wherever they come from; itself if it is no name."""
        if not isinstance(node, ast.expr):
            return []
        found: list[ast.AST] = [each for _, each in self.module.program.flow.origins(self.module, node)]
        is_unknown = found == [node] and isinstance(node, (ast.Name, ast.Attribute))
        return [] if is_unknown else found

    def uses(self, value: ast.AST) -> list[Mention]:
        """Where the variable that an expression is assigned to is read."""
        variable = self.variable(value)
        return self.file.mentions(variable, ast.Load) if variable else []

    def stores(self, node: ast.AST) -> list[Mention]:
        """Where the variable of a mention is assigned to."""
        return self.file.mentions(self.file.variable(node), ast.Store, ast.Del)

    def means(self, node: ast.AST, value: ast.AST) -> bool:
        """Whether a mention certainly means a value, since it comes behind it in the same flow."""
        return (
            isinstance(node, (ast.Name, ast.Attribute))
            and self.variable(value) == self.file.variable(node)
            and self.is_behind(node, value)
        )

    def holds(self, name: ast.AST | None, value: ast.AST) -> bool:
        """Whether a name certainly means the value that a statement above it gave it, under no condition."""
        return (
            isinstance(name, ast.Name)
            and isinstance(self.module.parents[value], ast.Assign)
            and self.variable(value) == self.file.variable(name)
            and self.comes_after(name, value)
            and all(self.file.function_of(each) is self.file.function_of(name) for each in self.stores(name))
        )

    def may_mean(self, use: ast.AST | None, value: ast.AST) -> bool:
        """Whether the variable that is read may still have a value: no other comes between, or is its class's own."""
        if not isinstance(use, (ast.Name, ast.Attribute)):
            return True
        own, maker = self.module.statement(value), self._class_of(value)
        others = [each for each in self.stores(use) if self.module.statement(each) is not own]
        home = self._class_of(use)
        has_own = home is not maker and any(self._class_of(each) is home for each in others)
        is_attribute = isinstance(use, ast.Attribute)
        return not (is_attribute and has_own) and not any(self.comes_after(use, other) for other in others)

    def is_behind(self, node: ast.AST, maker: ast.AST) -> bool:
        """Whether a node is reached only behind another one, and its variable is the same still."""
        return self.comes_after(node, maker) or self._is_set_by_init(node, maker)

    def comes_after(self, node: ast.AST, maker: ast.AST) -> bool:
        """The same, where both stand in one function."""
        statement = self.module.statement(maker)
        if self.file.function_of(node) is not self.file.function_of(maker):
            return False
        is_behind = any(
            statement in self.file.block_before(each)
            for each in (node, *self.module.around(node))
            if isinstance(each, ast.stmt)
        )
        return is_behind and not any(
            statement.lineno < store.lineno <= getattr(node, "lineno", 0)
            and self.module.statement(store) is not self.module.statement(node)  # `x = f(x)` reads first
            for store in self.stores(node)
        )

    def _is_set_by_init(self, node: ast.AST, maker: ast.AST) -> bool:
        """Whether `self.model` was wrapped at the end of all that `__init__` makes of it, in the class of the node."""
        init, own = self.file.function_of(maker), self._class_of(maker)
        statement = self.module.statement(maker)
        return (
            isinstance(node, ast.Attribute)
            and isinstance(init, NAMED_FUNCTIONS)
            and init.name == "__init__"
            and own is not None
            and own is self._class_of(node)
            and self.file.function_of(node) is not init
            and statement in init.body
            and all(
                self.file.function_of(store) is init and store.lineno <= statement.lineno
                for store in self.stores(node)
            )
        )

    def readers(self, node: ast.AST, *names: str) -> Iterator[ast.stmt]:
        """The statement of a node, and those behind it that read what it makes (or names), and so on."""
        own = self.module.statement(node)
        read = stored_names(own).union(names)
        turn = inside(self.file.turn_of(node), ast.stmt)
        later = (
            each for each in turn if not hasattr(each, "body") and each.lineno >= getattr(node, "lineno", 0)
        )
        for statement in sorted(later, key=lambda each: each.lineno):
            if statement is own or any(each.id in read for each in inside(statement, ast.Name)):
                yield statement
                read |= stored_names(statement)

    def is_open_file(self, node: ast.AST) -> bool:
        """Whether an expression is a file object, `io.BytesIO()` say, and no path: by its maker, or its name."""
        makers = (self.module.name(each.func) for each in self.values(node) if isinstance(each, ast.Call))
        if any((name or "").startswith(("io.", "builtins.open")) for name in makers):
            return True
        return isinstance(node, ast.Name) and OPEN_FILE.search(node.id) is not None

    def _class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return self.module.enclosing(node, ast.ClassDef)

    def received(self, call: ast.Call, given: ast.AST) -> list[ast.Name]:
        """Where a function of the file, that a call hands something to, names its parameter of it."""
        function = self.file.definition(call.func)
        if not isinstance(function, NAMED_FUNCTIONS):
            return []
        own = (each for each, value in handed(call) if value is given)
        taken = filter(None, (self.module.parameter(function, call, each) for each in own))
        mentions = (each for name in taken for each in self.module.by_word.get(name.arg, ()))
        return [
            each
            for each in mentions
            if isinstance(each, ast.Name) and self.file.function_of(each) is function
        ]

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
                    if any(
                        getattr(each, "id", None) == getattr(node, "id", "") for each in ast.walk(loop.target)
                    ):
                        return whole
        return None

    # --- loops

    def loops_over(self, value: ast.Call) -> Iterator[tuple[ast.For, ast.AST]]:
        """The loops that run through a value, by its name or a parameter that it is handed to; where it is read."""
        for use in (value, *(use for use in self.uses(value) if self.may_mean(use, value))):
            parent = self.module.enclosing(use, ast.Call, ast.stmt)
            inner = self.received(parent, use) if isinstance(parent, ast.Call) else []
            yield from ((loop, use) for each in (use, *inner) if (loop := self.loop_over(each)))

    def loop_over(self, use: ast.AST) -> ast.For | None:
        """`for ... in use`, `for ... in enumerate(tqdm(use))`."""
        inner, parent = use, self.module.parents[use]
        while isinstance(parent, ast.Call) and inner in parent.args:
            inner, parent = parent, self.module.parents[parent]
        return parent if isinstance(parent, ast.For) and inner is parent.iter else None

    def repeats(self, use: ast.AST) -> bool:
        """Whether a use stands in a loop that is not the loop over it, here or where its function is called."""
        inner = use
        for parent in self.module.around(use):
            if isinstance(parent, NAMED_FUNCTIONS):
                return any(self.file.loop_around(site) is not None for site in self.file.sites_of(parent))
            if isinstance(parent, (ast.For, ast.While)) and inner is not getattr(parent, "iter", None):
                return True
            inner = parent
        return False

    # --- gradients

    def is_without_gradient(self, node: ast.AST) -> bool:
        """Whether a node stands under no_grad, by a `with` or by a decorator of its function."""
        for parent in self.module.around(node):
            around = [item.context_expr for item in parent.items] if isinstance(parent, ast.With) else []
            around += parent.decorator_list if isinstance(parent, NAMED_FUNCTIONS) else []
            called = (each.func if isinstance(each, ast.Call) else each for each in around)
            if any(self.module.name(each) in UNDER_NO_GRAD for each in called):
                return True
        return False

    def trains_in(self, node: ast.AST) -> bool:
        """Whether something is differentiated inside a node, or in a function of the file that is called there."""
        called = (self.file.definition(call.func) for call in inside(node, ast.Call))
        bodies = [node, *(each for each in called if isinstance(each, NAMED_FUNCTIONS))]
        return any(each.attr == "backward" for body in bodies for each in inside(body, ast.Attribute))
