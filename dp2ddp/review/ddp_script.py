"""A script that uses DistributedDataParallel, and what the rules of the check ask of it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS
from dp2ddp.review.helper_calls import JOINS, MEETINGS, WRAPPERS, helper_of
from dp2ddp.review.names import DDP, LOADER, MAKES_GROUP, SAMPLERS
from dp2ddp.review.own_file import OwnFile, Variable
from dp2ddp.review.rank_conditions import RankConditions
from dp2ddp.review.sites import Sites
from dp2ddp.review.words import imports_of, names_of, terms_of

COLLECTIVES = {
    f"torch.distributed.{name}"
    for name in (
        *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all"),
        *("all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object"),
        *("monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter"),
        "scatter_object_list",
    )
}
NO_GRAD = ("torch.no_grad", "torch.inference_mode")
# Libraries that own the loop, the samplers or the output of ranks: what a script leaves out, they may do.
FRAMEWORKS = {
    *("accelerate", "catalyst", "colossalai", "composer", "deepspeed", "detectron2", "fairseq", "horovod"),
    *("ignite", "lightning", "mmcv", "mmengine", "pytorch_lightning", "ray", "transformers"),
}
SETS_UP = re.compile(
    r"init|setup|set_up|dist|launch|ddp|prepare|print|logg|device|gpu|cuda|rank|comm|begin|start|config",
    re.IGNORECASE,
)


REDUCES = re.compile(r"reduce|gather|metric|broadcast|synchronize")
STARTS_RANKS = re.compile(r"dist|ddp|process_group|launch|rank|slurm|init_", re.IGNORECASE)
OPEN_FILE = re.compile(r"buf|stream|^f$|^fp$|file_?obj|handle", re.IGNORECASE)


# Packages whose functions set no ranks up.
KNOWN = {*sys.stdlib_module_names, "builtins", "numpy", "torch", "torchvision"}


class DDPScript:
    """One file, read alone: what it proves holds whatever imports it."""

    def __init__(self, file: OwnFile) -> None:
        self.file, self.module = file, file.module
        self.sites = Sites(file)
        self.ranks = RankConditions(file, self.sites)

    # --- what is there

    @cached_property
    def wraps(self) -> tuple[Call, ...]:
        """The calls of DistributedDataParallel."""
        return tuple(self.file.calls_of(*DDP))

    @cached_property
    def groups(self) -> tuple[Call, ...]:
        """The calls of init_process_group."""
        return tuple(self.file.calls_of(MAKES_GROUP))

    @cached_property
    def trains_on_ranks(self) -> bool:
        """Whether this file itself wraps a model, and leaves the rest to nobody but torch."""
        return bool(self.wraps) and not self.has_framework

    @cached_property
    def helper_calls(self) -> dict[Call, str]:
        """The calls of dp2ddp's helpers, with the names of these: the script was converted."""
        named = {call: helper_of(self.file, call.node.func) for call in self.module.calls}
        return {call: name for call, name in named.items() if name}

    @cached_property
    def is_converted(self) -> bool:
        """Whether the ranks join by dp2ddp's helpers, which also end them."""
        return not JOINS.isdisjoint(self.helper_calls.values())

    @cached_property
    def whole_batch_wraps(self) -> tuple[Call, ...]:
        """The calls of helpers that wrap a model, and take whole batches."""
        return self._certain_helpers(WRAPPERS)

    @cached_property
    def helper_meetings(self) -> tuple[Call, ...]:
        """The calls of helpers that all ranks must call."""
        return self._certain_helpers(MEETINGS)

    def _certain_helpers(self, names: Collection[str]) -> tuple[Call, ...]:
        """Calls of helpers, where no other way of training on ranks is in sight: with it they may stand aside."""
        if self.wraps or self.groups or self.has_framework or any(map(self._starts_ranks, self.module.calls)):
            return ()
        return tuple(call for call, name in self.helper_calls.items() if name in names)

    def _starts_ranks(self, call: Call) -> bool:
        """Whether a function of another file, not of our helpers, may make a process group."""
        name = call.name or ""
        is_foreign = name.split(".")[0] not in KNOWN and not self.file.is_own(name)
        return is_foreign and call not in self.helper_calls and STARTS_RANKS.search(name) is not None

    @cached_property
    def has_framework(self) -> bool:
        """Whether a library is imported that may do what the script leaves out."""
        return any(name.split(".")[0] in FRAMEWORKS for name in self.imports)

    @cached_property
    def samplers(self) -> tuple[Call, ...]:
        """The calls of DistributedSampler."""
        return tuple(self.file.calls_of(*SAMPLERS))

    @cached_property
    def loaders(self) -> tuple[Call, ...]:
        """The calls of DataLoader."""
        return tuple(self.file.calls_of(LOADER))

    @cached_property
    def collectives(self) -> tuple[Call, ...]:
        """The calls of functions of torch.distributed that all ranks of a group must make."""
        return tuple(call for call in self.module.calls if call.name in COLLECTIVES)

    @cached_property
    def may_reduce(self) -> bool:
        """Whether anything in the file may bring numbers of ranks together, by whatever name."""
        return self.has_name(REDUCES)

    @cached_property
    def sampler_of(self) -> dict[ast.Call, Call]:
        """The DistributedSampler of each DataLoader that is given one, directly or by a name."""
        makers = {call.node: call for call in self.samplers}
        samplers = {}
        for loader in self.loaders:
            given = loader.argument(3, "sampler")
            for value in self.values_of(given) if given is not None else ():
                if value in makers and self._may_mean(given, value):
                    samplers[loader.node] = makers[value]
        return samplers

    def certain_sampler(self, loader: Call) -> Call | None:
        """The DistributedSampler that a loader is given in every run: made in its call, or in a statement above it."""
        given = loader.argument(3, "sampler")
        for sampler in self.samplers:
            if sampler.node is given or self._holds(given, sampler.node):
                return sampler
        return None

    def _holds(self, name: ast.AST | None, value: ast.AST) -> bool:
        """Whether a name certainly means the value that a statement above it gave it, under no condition."""
        return (
            isinstance(name, ast.Name)
            and isinstance(self.module.parents[value], ast.Assign)
            and self.variable_of(value) == self.file.variable(name)
            and self._comes_after(name, value)
            and all(
                self.sites.function_of(store) is self.sites.function_of(name) for store in self._stores(name)
            )
        )

    @cached_property
    def own_save(self) -> bool:
        """Whether torch.save is replaced (`torch.save = save_on_master`)."""
        return any(
            isinstance(mention.ctx, ast.Store) and self.file.text_of(mention) == "torch.save"
            for mention in self.module.by_word.get("save", ())
        )

    # --- names

    def variable_of(self, value: ast.AST) -> Variable | None:
        """The variable that an expression is assigned to, alone; through `.to(device)`, `.cuda()`, `x if y else z`."""
        parent = self.module.parents.get(value)
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "train"):
            call = self.module.parents.get(parent)
            return self.variable_of(call) if isinstance(call, ast.Call) else None
        if isinstance(parent, ast.IfExp):
            return self.variable_of(parent)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, (ast.Name, ast.Attribute)):
                return self.file.variable(target)
        return None

    def values_of(self, node: ast.AST) -> list[ast.AST]:
        """The expressions that a name may stand for, wherever they come from; itself if it is no name."""
        if not isinstance(node, ast.expr):
            return [node]
        found: list[ast.AST] = [each for _, each in self.module.program.flow.origins(self.module, node)]
        is_unknown = found == [node] and isinstance(node, (ast.Name, ast.Attribute))
        return [] if is_unknown else found

    def is_open_file(self, node: ast.AST) -> bool:
        """Whether an expression is a file object, `io.BytesIO()` say, and no path: by its maker, or its name."""
        makers = (
            self.module.name(value.func) or ""
            for value in self.values_of(node)
            if isinstance(value, ast.Call)
        )
        if any(name.startswith(("io.", "builtins.open")) for name in makers):
            return True
        return isinstance(node, ast.Name) and OPEN_FILE.search(node.id) is not None

    @cached_property
    def names(self) -> frozenset[str]:
        """What the code calls things."""
        return names_of(self.module)

    @cached_property
    def terms(self) -> frozenset[str]:
        """Texts of one word."""
        return terms_of(self.module)

    @cached_property
    def imports(self) -> frozenset[str]:
        """The full names of all that is imported."""
        return imports_of(self.module)

    def has_name(self, pattern: re.Pattern[str]) -> bool:
        """Whether the code calls anything so; comments and texts do not count."""
        return any(map(pattern.search, self.names))

    def has_word(self, pattern: re.Pattern[str]) -> bool:
        """`has_name`, or a text of one word: of an option, a variable of the environment, a model in a table."""
        return self.has_name(pattern) or any(map(pattern.search, self.terms))

    def names_module(self, module: str) -> bool:
        """Whether a module, or something in it, is imported or named."""
        if any(name == module or name.startswith(f"{module}.") for name in self.imports):
            return True
        mentions = self.module.by_word.get(module.rpartition(".")[2], ())
        return any(self.module.name(mention) == module for mention in mentions)

    def mentions(self, word: str) -> bool:
        """Whether a name, an attribute, a keyword or a text of the file is this word; comments do not count."""
        return (
            word in self.module.by_word
            or any(getattr(node, "arg", None) == word for node in self.module.nodes(ast.keyword))
            or any(getattr(node, "value", None) == word for node in self.module.nodes(ast.Constant))
        )

    # --- wrappers

    def wrap_behind(self, node: ast.AST, wraps: Sequence[Call] | None = None) -> Call | None:
        """The wrap that a mention of a variable certainly means, since it comes after it in the same flow.

        By default of torch's own; `wraps` are others.
        """
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        variable = self.file.variable(node)
        for wrap in self.wraps if wraps is None else wraps:
            if self.variable_of(wrap.node) == variable and (
                self._comes_after(node, wrap.node) or self._is_set_by_init(node, wrap.node)
            ):
                return wrap
        return None

    def _comes_after(self, node: ast.AST, maker: ast.AST) -> bool:
        """Whether a node is reached only behind the statement of another one, and its variable is the same still."""
        statement = self.module.statement(maker)
        if self.sites.function_of(node) is not self.sites.function_of(maker):
            return False
        block = self._block_of(statement)
        later = block[block.index(statement) + 1 :] if statement in block else []
        around = {id(node), *(id(parent) for parent in self.module.around(node))}
        return any(id(other) in around for other in later) and not any(
            statement.lineno < store.lineno <= getattr(node, "lineno", 0)
            and self.module.statement(store) is not self.module.statement(node)  # `x = f(x)` reads first
            for store in self._stores(node)
        )

    def _is_set_by_init(self, node: ast.AST, maker: ast.AST) -> bool:
        """Whether `self.model` was wrapped at the end of all that `__init__` makes of it, in the class of the node."""
        init = self.sites.function_of(maker)
        own = self.sites.owner_class(maker)
        if not isinstance(node, ast.Attribute) or getattr(init, "name", "") != "__init__" or own is None:
            return False
        statement = self.module.statement(maker)
        return (
            own is self.sites.owner_class(node)
            and self.sites.function_of(node) is not init
            and statement in init.body  # type: ignore[attr-defined]  # a function
            and all(
                self.sites.function_of(store) is init and store.lineno <= statement.lineno
                for store in self._stores(node)
            )
        )

    def _block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        parent = self.module.parents[statement]
        blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
        return next((block for block in blocks if isinstance(block, list) and statement in block), [])

    def _stores(self, node: ast.AST) -> list[ast.Name | ast.Attribute]:
        """Where the variable of a mention is assigned to."""
        variable = self.file.variable(node)
        return [
            mention
            for mention in self.module.by_word.get(variable[1].lstrip("."), ())
            if isinstance(mention.ctx, (ast.Store, ast.Del)) and self.file.variable(mention) == variable
        ]

    def uses_of(self, value: ast.AST) -> list[ast.Name | ast.Attribute]:
        """Where the variable that an expression is assigned to is read."""
        variable = self.variable_of(value)
        if variable is None:
            return []
        return [
            mention
            for mention in self.module.by_word.get(variable[1].lstrip("."), ())
            if isinstance(mention.ctx, ast.Load) and self.file.variable(mention) == variable
        ]

    def _may_mean(self, use: ast.AST | None, value: ast.AST) -> bool:
        """Whether the variable that is read may still have a value: no other comes between, or is its class's own."""
        if not isinstance(use, (ast.Name, ast.Attribute)):
            return True
        own, maker = self.module.statement(value), self.sites.owner_class(value)
        others = [store for store in self._stores(use) if self.module.statement(store) is not own]
        home = self.sites.owner_class(use)
        has_own = home is not maker and any(self.sites.owner_class(store) is home for store in others)
        is_attribute = isinstance(use, ast.Attribute)
        return not (is_attribute and has_own) and not any(self._comes_after(use, other) for other in others)

    # --- loops over data

    def loops_over(self, loader: ast.Call) -> Iterator[ast.For]:
        """The loops of this file that run through a loader, by its name or by a parameter that it is handed to."""
        for use in (loader, *(use for use in self.uses_of(loader) if self._may_mean(use, loader))):
            parent = self.module.parents[use]
            if isinstance(parent, ast.Call) and isinstance(
                function := self.file.definition(parent.func), NAMED_FUNCTIONS
            ):
                yield from self._loops_over_parameter(function, parent, use)
            elif loop := self.loop_over(use):
                yield loop

    def _loops_over_parameter(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, given: ast.AST
    ) -> Iterator[ast.For]:
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        place = next((place for place, argument in enumerate(call.args) if argument is given), None)
        name = next((keyword.arg for keyword in call.keywords if keyword.value is given), None)
        if place is not None and place < len(names):
            name = names[place]
        for mention in self.module.by_word.get(name or "", ()):
            if isinstance(mention, ast.Name) and self.sites.function_of(mention) is function:
                loop = self.loop_over(mention)
                if loop is not None:
                    yield loop

    def loop_over(self, use: ast.AST) -> ast.For | None:
        """`for ... in use`, `for ... in enumerate(tqdm(use))`."""
        inner = use
        parent = self.module.parents[use]
        while isinstance(parent, ast.Call) and inner in parent.args:
            inner, parent = parent, self.module.parents[parent]
        return parent if isinstance(parent, ast.For) and inner is parent.iter else None

    def is_without_gradient(self, node: ast.AST) -> bool:
        """Whether a node stands under no_grad, by a `with` or by a decorator of its function."""
        for parent in self.module.around(node):
            around = [item.context_expr for item in parent.items] if isinstance(parent, ast.With) else []
            around += parent.decorator_list if isinstance(parent, NAMED_FUNCTIONS) else []
            for expression in around:
                called = expression.func if isinstance(expression, ast.Call) else expression
                if self.module.name(called) in NO_GRAD:
                    return True
        return False

    def trains_in(self, node: ast.AST) -> bool:
        """Whether something is differentiated inside a node, or in a function of the file that is called there."""
        inside = list(ast.walk(node))
        called = (self.file.definition(inner.func) for inner in inside if isinstance(inner, ast.Call))
        bodies = [function for function in called if isinstance(function, NAMED_FUNCTIONS)]
        everything = (*inside, *(inner for function in bodies for inner in ast.walk(function)))
        return any(isinstance(inner, ast.Attribute) and inner.attr == "backward" for inner in everything)

    @cached_property
    def sets_up_elsewhere(self) -> bool:
        """Whether a function of another file may set ranks up, or mute them: `utils.init_distributed_mode(args)`."""
        return any(
            SETS_UP.search(call.name.rpartition(".")[2])
            and call.name.split(".")[0] not in KNOWN
            and not self.file.is_own(call.name)
            for call in self.module.calls
            if call.name
        )
