"""What rank 0 does alone: the statements that print, log, save and track, found block by block."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.aliases import followed_names
from dp2ddp.codemod.facts.call_graph import Part
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, Script, Variable
from dp2ddp.codemod.facts.sinks import PROCESSES
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.idiomatic.bars import says_by_bar
from dp2ddp.codemod.idiomatic.harmless import Harmless
from dp2ddp.codemod.idiomatic.reading import asks_for_files
from dp2ddp.codemod.idiomatic.remembered import once_a_project

PRINTS = {
    *of("builtins", "print"),
    *of("sys", "stdout.write stdout.flush stderr.write stderr.flush"),
    *of("pprint", "pprint pp"),
    *of("logging", "debug info warning warn error critical exception log basicConfig"),
    *(
        "tqdm.tqdm.write",
        "wandb.log",
        "wandb.watch",
        "wandb.save",
        "wandb.finish",
        "wandb.init",
        "wandb.login",
    ),
    *of(
        "mlflow", "log_metric log_metrics log_param log_params log_artifact set_experiment start_run end_run"
    ),
    *of("matplotlib.pyplot", "savefig show close figure plot"),
    *of("torchsummary", "summary"),
}
BARS = {
    "tqdm.tqdm",
    "tqdm.trange",
    "tqdm.auto.tqdm",
    "tqdm.auto.trange",
    "tqdm.notebook.tqdm",
    "tqdm.std.tqdm",
}
LOG_METHODS = {"debug", "info", "warning", "warn", "error", "critical", "exception", "log"}
READS = {"read", "readline", "readlines"}
LOGGERS = {"logger", "log", "logging", "_logger"}
GETS = {
    *of("urllib", "request.urlretrieve urlretrieve"),
    "gdown.download",
    "wget.download",
    "shutil.unpack_archive",
}
COMMANDS = re.compile(r"wget|curl|unzip|tar |gdown|git clone")
MADE_ONCE = {"tracker", "writer", "handler", "rotating", "open", "opener", "path open"}
DONE_ONCE = {"save", "saver", "file", "log file", "process", "saver or open file", "saver of who knows what"}
Block = list[ast.stmt]


@dataclass(frozen=True, eq=False)
class StatementRun:
    """Statements that follow each other in one block, all of them rank 0's."""

    first: ast.stmt
    last: ast.stmt
    nodes: tuple[ast.stmt, ...]
    writes: bool  # a file, a tracker: more than output

    def gets_data(self, script: Script) -> bool:
        """Whether it downloads or unpacks what the other ranks will read."""
        calls = [inner for node in self.nodes for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        names = ((script.scopes.name(call.func) or "", script.text_of(call)) for call in calls)
        return any(name in GETS or name in PROCESSES and COMMANDS.search(text) for name, text in names)

    @property
    def fold(self) -> ast.If | None:
        """`if is_best:`, whose question can take the rank in."""
        return (
            self.first
            if self.first is self.last and isinstance(self.first, ast.If) and not self.first.orelse
            else None
        )


@dataclass(frozen=True, eq=False)
class Once:
    """What one file does once."""

    runs: tuple[StatementRun, ...] = ()
    made: tuple[
        ast.Call, ...
    ] = ()  # writers and files that rank 0 alone has: `writer = X(...) if rank == 0 else None`
    bars: tuple[ast.Call, ...] = ()  # progress bars
    stuck: tuple[tuple[ast.AST, str], ...] = ()  # what cannot be left to rank 0, and why
    covered: frozenset[ast.AST] = field(default_factory=frozenset)  # every node that rank 0 alone comes to

    def holds(self, node: ast.AST) -> bool:
        return node in self.covered


@lru_cache(maxsize=64)
def read_once(facts: Facts) -> Once:
    """What rank 0 does alone in one file."""
    return _OnceReader(facts).read()


@once_a_project
def called_functions(facts: Facts) -> frozenset[ast.AST]:
    """The functions that what runs by itself leads to."""
    roots: list[Part] = [
        (script, statement)
        for script in facts.modules.scripts
        for statement in script.tree.body
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    classes = [(script, class_) for script in facts.modules.scripts for class_ in script.nodes(ast.ClassDef)]
    methods = [(script, method) for script, owner in classes for method in getattr(owner, "body", ())]
    return frozenset(function for _, function in facts.modules.graph.reached([*roots, *methods]))


class _OnceReader:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.script = facts.script
        self.harmless = Harmless(facts)
        self.kinds = {effect.call.node: effect.kind for effect in facts.effects}
        self.made = {
            node: self._held_by(node)
            for node, kind in self.kinds.items()
            if kind in MADE_ONCE and self._is_assigned(node)
        }
        self.held: set[Variable] = set().union(*self.made.values()) if self.made else set()
        self.solo: dict[ast.stmt, bool] = {}
        self.for_solo: dict[ast.stmt, bool] = {}
        self.calls: dict[ast.AST, CallSite] = {call.node: call for call in self.script.calls}

    def read(self) -> Once:
        everything = [run for block in self._blocks() for run in self._runs(block)]
        runs = tuple(run for run in everything if run.writes or self._is_called(run.first))
        covered = {node for run in everything for statement in run.nodes for node in ast.walk(statement)}
        shared = tuple(made for made in self.made if made not in covered)
        covered |= {node for made in self.made for node in ast.walk(made)}
        return Once(
            runs,
            shared,
            tuple(self._bars()),
            (*self._stuck(covered), *self._missed(covered), *self._races(list(runs))),
            frozenset(covered),
        )

    def _is_called(self, statement: ast.stmt) -> bool:
        """Whether the function around a statement is called by anything: a module's own `test()` may be nobody's."""
        function = self.script.scopes.function(statement)
        return function is None or self.facts.is_entry or function in called_functions(self.facts)

    # --- what speaks

    def _is_assigned(self, node: ast.Call) -> bool:
        statement = self.script.scopes.parents[node]
        return isinstance(statement, ast.Assign) and statement.value is node

    def _held_by(self, node: ast.Call) -> frozenset[Variable]:
        statement = self.script.scopes.parents[node]
        assert isinstance(statement, ast.Assign)
        program = self.facts.program
        return followed_names(program, {node}, {program.variable(target) for target in statement.targets})

    def _speaks(self, call: CallSite) -> bool:
        """Whether a call prints, logs, writes, or is made of what rank 0 alone has."""
        if self.facts.places.of(call.node) is not ExecutionPlace.MAIN:
            return False
        kind = self.kinds.get(call.node)
        if kind in DONE_ONCE or kind in MADE_ONCE:
            return call.node not in self.made
        if call.name in PRINTS or self._is_logger(call) or says_by_bar(self.script, call.node):
            return True
        if call.method in READS:
            return False  # of a file that is open for reading under the same name
        return any(self._is_held(part) or self._makes(part) for part in self._parts(call.node))

    def _parts(self, call: ast.Call) -> Iterator[ast.AST]:
        """What a call is made of: the object of its method, its arguments; not what functions of the project get."""
        if isinstance(call.func, ast.Attribute):
            yield call.func.value
        if not self._is_own_call(call):
            yield from (*call.args, *(keyword.value for keyword in call.keywords))

    def _is_held(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and self.facts.program.variable(node) in self.held

    def _makes(self, node: ast.AST) -> bool:
        """`logging.FileHandler(path)`, made where it is given: `logger.addHandler(logging.FileHandler(path))`."""
        return isinstance(node, ast.Call) and self.kinds.get(node) in MADE_ONCE

    def _is_logger(self, call: CallSite) -> bool:
        if call.method not in LOG_METHODS or not isinstance(call.node.func, ast.Attribute):
            return False
        owner = call.node.func.value
        made = self.script.scopes.value(owner)
        name = self.script.scopes.name(made.func if isinstance(made, ast.Call) else owner) or ""
        last = self.script.text_of(owner).rpartition(".")[2].lower()
        return name.startswith(("logging", "loguru")) or last in LOGGERS

    def _bars(self) -> Iterator[ast.Call]:
        for call in self.script.calls:
            if (
                call.name in BARS
                and self.facts.places.of(call.node) is ExecutionPlace.MAIN
                and call.keyword("disable") is None
            ):
                yield call.node

    # --- statements

    def _blocks(self) -> Iterator[Block]:
        """Blocks that are not inside a block that is rank 0's already."""
        pending: list[ast.AST] = [self.script.tree]
        while pending:
            node = pending.pop(0)
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    yield block
                    pending += [statement for statement in block if not self._is_solo(statement)]
            pending += [part for kind in ("handlers", "cases") for part in getattr(node, kind, [])]

    def _runs(self, block: Block) -> Iterator[StatementRun]:
        run: Block = []
        for statement in [*block, None]:
            if statement is not None and (self._is_solo(statement) or self._is_for_solo(statement, block)):
                run.append(statement)
                continue
            while run and not self._is_solo(run[-1]):
                run.pop()
            if run:
                yield StatementRun(run[0], run[-1], tuple(run), any(self._writes(each) for each in run))
            run = []

    def _writes(self, statement: ast.stmt) -> bool:
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        return any(call in self.kinds or self._is_of_held(call) for call in calls)

    def _is_of_held(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and self._is_held(call.func.value)

    def _is_solo(self, statement: ast.stmt) -> bool:
        """Whether a statement does nothing but what rank 0 does alone."""
        if statement not in self.solo:
            self.solo[statement] = self._is_reached(statement) and self._find_solo(statement)
        return self.solo[statement]

    def _is_reached(self, statement: ast.stmt) -> bool:
        return (
            self.facts.reach.holds(self.script, statement)
            and statement.lineno not in self.script.helper_lines
        )

    def _find_solo(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Expr(value=value):
                return self._prints(value) and self._is_left_out(value)
            case ast.If(test=test, body=body, orelse=orelse):
                is_elif = self._is_elif(statement)
                blocks = [block for block in (body, orelse) if block]
                return not is_elif and self._is_harmless(test) and all(map(self._is_solo_block, blocks))
            case ast.For(iter=source, body=body, orelse=[]):
                return self._is_harmless(source) and self._is_plain_list(source) and self._is_solo_block(body)
            case ast.With(body=body):
                return self._opens(statement) and all(
                    self._is_part_of_writing(statement) for statement in body
                )
        return False

    def _is_solo_block(self, block: Block) -> bool:
        """Whether a block is rank 0's, with what is computed for it alone."""
        return any(map(self._is_solo, block)) and all(
            self._is_solo(statement) or self._is_for_solo(statement, block) for statement in block
        )

    def _is_plain_list(self, source: ast.expr) -> bool:
        """What a loop goes through that surely loads nothing: a range, the items of a dictionary, a list."""
        value = self.script.scopes.value(source)
        match value:
            case ast.List() | ast.Tuple() | ast.Dict() | ast.ListComp() | ast.DictComp():
                return True
            case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values"), args=[]):
                return True
            case ast.Call(func=func):
                name = self.script.scopes.name(func)
                is_listing = name in ("builtins.enumerate", "builtins.zip", "builtins.sorted")
                return name == "builtins.range" or is_listing and all(map(self._is_plain_list, value.args))
        return False

    def _is_elif(self, statement: ast.If) -> bool:
        parent = self.script.scopes.parents[statement]
        if not isinstance(parent, ast.If) or parent.orelse != [statement]:
            return False
        start = self.script.positions.span(statement).start
        return self.script.positions.text[start:].startswith("elif")

    def _prints(self, node: ast.AST) -> bool:
        return any(map(self._speaks, self._calls_in(node)))

    def _is_left_out(self, value: ast.expr) -> bool:
        """Whether nothing in a speaking expression is needed of the other ranks."""
        return next(self._needed_by_all(value), None) is None

    def _needed_by_all(self, value: ast.expr) -> Iterator[ast.AST]:
        speaking = {call.node for call in self._calls_in(value) if self._speaks(call)}
        return (harm for harm in self.harmless.harms(self.script, value) if harm not in speaking)

    def _calls_in(self, node: ast.AST) -> list[CallSite]:
        return [self.calls[inner] for inner in ast.walk(node) if inner in self.calls]

    def _is_harmless(self, node: ast.AST) -> bool:
        return self.harmless.is_harmless(self.script, node)

    @cached_property
    def _writing(self) -> list[ast.stmt]:
        """The `with open(path, "w") as f:` of the file."""
        return [
            node for node in self.script.nodes(ast.With) if isinstance(node, ast.With) and self._opens(node)
        ]

    def _opens(self, statement: ast.With) -> bool:
        return all(self.kinds.get(item.context_expr) in MADE_ONCE for item in statement.items)  # type: ignore[call-overload]

    def _is_part_of_writing(self, statement: ast.stmt) -> bool:
        """Inside of `with open(path, "w") as f:`: it writes, or computes what is written."""
        if self._is_solo(statement):
            return True
        match statement:
            case ast.Expr(value=value):
                return self._is_harmless(value)
            case ast.For(iter=source, body=body, orelse=[]):
                return self._is_harmless(source) and all(map(self._is_part_of_writing, body))
            case ast.If(test=test, body=body, orelse=orelse):
                return self._is_harmless(test) and all(map(self._is_part_of_writing, [*body, *orelse]))
            case ast.Assign(targets=[ast.Name() as target], value=value):
                return self._is_harmless(value) and self._is_read_only_in(target, self._writing)
        return False

    def _is_for_solo(self, statement: ast.stmt, block: Block) -> bool:
        """`state = {...}`, which only the `torch.save(state, path)` behind it reads."""
        if statement not in self.for_solo:
            self.for_solo[statement] = self._find_for_solo(statement, block)
        return self.for_solo[statement]

    def _find_for_solo(self, statement: ast.stmt, block: Block) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Name() as target], value=value) if self._is_harmless(value):
                later = block[block.index(statement) + 1 :]
                solo = [
                    statement
                    for statement in later
                    if self._is_solo(statement) or self._is_for_solo(statement, block)
                ]
                return bool(solo) and self._is_read_only_in(target, solo)
        return False

    def _is_read_only_in(self, target: ast.Name, statements: list[ast.stmt]) -> bool:
        """Whether a name is read, and that inside of these statements alone, all behind this one."""
        variable = self.script.variable(target)
        inside = {node for statement in statements for node in ast.walk(statement)}
        mentions = [
            mention
            for mention in self.script.by_word.get(target.id, ())
            if self.script.variable(mention) == variable
        ]
        reads = [mention for mention in mentions if isinstance(mention.ctx, ast.Load)]
        is_local = variable[0] is self.script.scopes.function(target) or variable[0] is self.script.tree
        return bool(reads) and is_local and all(mention in inside for mention in reads)

    def _missed(self, covered: set[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
        """Where the other ranks would need what rank 0 alone has: `data = f["data"]` of an open file."""
        for node in self.script.nodes(ast.Name, ast.Attribute) if self.held else ():
            is_read = isinstance(getattr(node, "ctx", None), ast.Load)
            if is_read and node not in covered and self._is_held(node) and not self._is_handed_on(node):
                reader = _short(self.script, self.script.scopes.parents[node])
                yield (
                    node,
                    f"rank 0 alone has `{_short(self.script, node)}`, and all ranks need it for `{reader}`",
                )

    def _is_handed_on(self, node: ast.AST) -> bool:
        """Given to a function of the project or to another name, or asked whether it is there."""
        parent = self.script.scopes.parents[node]
        match parent:
            case (
                ast.Compare(ops=[ast.Is() | ast.IsNot()])
                | ast.If()
                | ast.BoolOp()
                | ast.UnaryOp()
                | ast.Assign()
            ):
                return True
            case ast.Tuple() | ast.Return():
                return True
            case ast.Call():
                return parent.func is not node and self._is_own_call(parent)
            case ast.keyword():
                call = self.script.scopes.parents[parent]
                return isinstance(call, ast.Call) and self._is_own_call(call)
            case ast.For():  # a file that is written to cannot be gone through: it is open for reading there
                return parent.iter is node
            case ast.Attribute():  # `self.writer` of an object, `f.readline()`: judged with its call
                call = self.script.scopes.parents[parent]
                return isinstance(call, ast.Call) and call.func is parent and parent.attr in READS
        return False

    def _is_own_call(self, call: ast.Call) -> bool:
        modules = self.facts.modules
        definition = modules.definition(self.script, call.func) or next(
            modules.graph.means(self.script, call.func), None
        )
        return definition is not None

    def _races(self, runs: list[StatementRun]) -> Iterator[tuple[ast.AST, str]]:
        """Where all ranks ask whether a file is there, and rank 0 makes it meanwhile."""
        for run in (run for run in runs if run.writes):
            for parent in self.script.scopes.ancestors(run.first):
                if isinstance(parent, (ast.For, ast.While, ast.FunctionDef)):
                    break
                if isinstance(parent, ast.If) and asks_for_files(self.script, parent.test):
                    test = _short(self.script, parent.test)
                    yield (
                        run.first,
                        f"all ranks ask `{test}`, and rank 0 writes below it: others may find half a file",
                    )
                    break

    # --- what cannot be left to rank 0

    def _stuck(self, covered: set[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
        for call in self.script.calls:
            if call.node in covered or not self.facts.reach.holds(self.script, call.node):
                continue
            if not self._speaks(call):
                continue
            statement = self.script.scopes.statement(call.node)
            text = _short(self.script, call.node)
            if not isinstance(statement, ast.Expr):
                yield call.node, f"what `{text}` gives back is used"
            elif harm := next(self._needed_by_all(statement.value), None):
                shown = _short(self.script, harm)
                yield harm, f"`{shown}` stands in a line that rank 0 alone would run, and all ranks need it"
            else:
                yield call.node, f"`{text}` stands where it cannot be put under a condition"


def _short(script: Script, node: ast.AST) -> str:
    text = " ".join(script.text_of(node).split())
    return text if len(text) <= 50 else text[:47] + "..."
