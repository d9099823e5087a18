"""Which parts of the local modules a script can reach: only those are converted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from dp2ddp.codemod.facts.entry import is_main_guard
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.source.parsing import nodes_in

ANYTHING = {"builtins.eval", "builtins.exec", "importlib.import_module", "builtins.__import__"}
ANYTHING |= {
    "pydoc.locate",
    "hydra.utils.instantiate",
    "hydra.utils.get_class",
    "runpy.run_module",
    "runpy.run_path",
}
BY_NAME = {
    "builtins.getattr",
    "builtins.vars",
    "builtins.hasattr",
    "inspect.getmembers",
}  # of a module: all of it
ASKS_BY_NAME = {"builtins.getattr", "builtins.dir", "inspect.getmembers", "inspect.getattr_static"}
FINDS_CLASSES = {"__subclasses__", "__init_subclass__"}
KEEPS_TO_ITSELF = (
    "torch.",
    "functools.",
    "dataclasses.",
    "contextlib.",
    "typing.",
    "abc.",
    "numba.",
    "builtins.",
)


class Reach:
    """A function or class of a local module counts where code that can be reached mentions its name.

    An import alone is no mention. A decorator of the user's own may hand on what it decorates (a registry), so that
    counts too. Of a module whose names are looked up at run time (`getattr(models, name)`, `models.__dict__[name]`)
    everything counts; where modules are, or text is run, everything of all modules.
    """

    def __init__(self, entry: Script, by_name: Mapping[str, Script]) -> None:
        self.modules = frozenset(by_name.values()) - {entry}
        scripts = tuple(dict.fromkeys((entry, *by_name.values())))
        self.everything = any(_may_reach_anything(script) for script in scripts)
        named = {name for script in scripts for name in _looked_up_names(script)}
        self.whole = {
            script for name, script in by_name.items() if any(_is_within(name, module) for module in named)
        }
        self.scripts = scripts
        self.mentioned = self._mentioned(
            [node for node in entry.tree.body if _is_own(entry, node)], scripts[1:]
        )
        self._held: dict[ast.stmt, bool] = {}

    def holds(self, script: Script, node: ast.AST) -> bool:
        """Whether a node of a file can run when the entry script is started."""
        if script not in self.modules or isinstance(node, ast.Module):
            return True  # the entry script, or all that is reached, read as one (facts/program.py)
        statement = _top_statement(script, node)
        if statement not in self._held:
            self._held[statement] = not is_main_guard(statement) and (
                _name(statement) in self.mentioned or self._is_always_reached(script, statement)
            )
        return self._held[statement]

    def _is_always_reached(self, script: Script, statement: ast.stmt) -> bool:
        """Whether a statement of a local module counts, whoever mentions its name."""
        if _name(statement) is None or self.everything or script in self.whole:
            return True
        return any(not _keeps_to_itself(script, node) for node in getattr(statement, "decorator_list", ()))

    def runs(self, script: Script, node: ast.AST) -> bool:
        """Whether a node can run, also by what the entry script itself mentions: it may define what it never uses."""
        if isinstance(node, ast.Module) or not self.holds(script, node):
            return False
        statement = _top_statement(script, node)
        return _name(statement) is None or _name(statement) in self._running

    def is_called(self, script: Script, node: ast.AST) -> bool:
        """Whether a node can run, method by method: one whose name nothing that is reached mentions, never does.

        Where attributes are looked up by names that are not known, and where a library may call a method, all count.
        """
        if not self.holds(script, node):
            return False
        around = [ancestor for ancestor in script.scopes.ancestors(node) if isinstance(ancestor, Function)]
        return self._finds_methods or all(self._is_looked_up(script, parent) for parent in around)

    def _is_looked_up(self, script: Script, function: ast.AST) -> bool:
        owner = script.scopes.parents[function]
        name = _name(function) or ""  # type: ignore[arg-type]  # a definition is a statement
        is_known = (
            name in self.mentioned or name.startswith("__") or bool(getattr(function, "decorator_list", ()))
        )
        if is_known or not isinstance(owner, ast.ClassDef) or self._may_override(script, owner):
            return True
        return any(name == literal(node) for each in self.scripts for node in each.nodes(ast.Constant))

    def _may_override(self, script: Script, owner: ast.ClassDef) -> bool:
        """Whether a base of a class, or a keyword of it, is not the project's own: it may call what it knows."""
        bases = [script.scopes.definition(base) for base in owner.bases if script.text_of(base) != "object"]
        return bool(owner.keywords or owner.decorator_list) or any(
            not isinstance(base, ast.ClassDef) or self._may_override(script, base) for base in bases
        )

    @cached_property
    def _finds_methods(self) -> bool:
        """Whether something asks objects for attributes whose names the text does not tell."""
        for script in self.scripts:
            if any(word in script.by_word for word in ("__getattribute__", "attrgetter", "methodcaller")):
                return True
            if any(
                self._may_be_class(getattr(mention, "value", None))
                for mention in script.by_word.get("__dict__", ())
            ):
                return True
            for call in script.calls:
                if call.name in ASKS_BY_NAME and not isinstance(literal(call.argument(1)), str):
                    return True
                if call.name == "builtins.vars" and self._may_be_class(call.argument(0)):
                    return True
        return self.everything

    def _may_be_class(self, node: ast.AST | None) -> bool:
        """A class by its name, `type(x)`, `table[name]`; any other name is taken for an object: `vars(args)`."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return True
        name = node.id if isinstance(node, ast.Name) else node.attr
        return name in ("cls", "__class__") or any(
            getattr(node, "name", "") == name for each in self.scripts for node in each.nodes(ast.ClassDef)
        )

    @cached_property
    def _running(self) -> set[str]:
        entry = self.scripts[0]
        guards = [node for node in entry.tree.body if is_main_guard(node) and _is_own(entry, node)]
        return self._mentioned(guards, self.scripts)

    def _mentioned(self, begun: Sequence[ast.AST], scripts: Sequence[Script]) -> set[str]:
        """The names that code which can be reached mentions: what has begun, and what of these files it mentions."""
        pending = list(begun)
        waiting: dict[str, list[ast.AST]] = {}  # definitions that nobody has mentioned yet
        for script in scripts:
            for node in script.tree.body:
                if self._is_always_reached(script, node) and not is_main_guard(node):
                    pending.append(node)
                elif not is_main_guard(node):
                    waiting.setdefault(_name(node) or "", []).append(node)
        names: set[str] = set()
        while pending:
            new = set(_identifiers(pending.pop())) - names
            names |= new
            pending += [node for name in new for node in waiting.pop(name, ())]
        return names


def _may_reach_anything(script: Script) -> bool:
    """Whether modules or classes are looked up where no name says which."""
    if any(call.name in ANYTHING and _is_own(script, call.node) for call in script.calls):
        return True
    methods = script.own_methods & FINDS_CLASSES
    return bool(methods) or any(_finds_classes(script, node) for node in script.nodes(ast.Attribute))


def _finds_classes(script: Script, node: ast.AST) -> bool:
    assert isinstance(node, ast.Attribute)
    asks = node.attr in FINDS_CLASSES or script.scopes.name(node) == "sys.modules"
    return asks and _is_own(script, node)


def _is_own(script: Script, node: ast.AST) -> bool:
    """Whether a node is the user's; helpers of an earlier conversion reach nothing of theirs."""
    return getattr(node, "lineno", 0) not in script.helper_lines


def _keeps_to_itself(script: Script, decorator: ast.expr) -> bool:
    """Whether a decorator is known to put what it decorates into no table."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (script.scopes.name(called) or "").startswith(KEEPS_TO_ITSELF)


def _looked_up_names(script: Script) -> Iterator[str]:
    """The modules whose definitions a file looks up by their names."""
    for call in script.calls:
        if not _is_own(script, call.node):
            continue
        if call.name in BY_NAME and (path := script.scopes.name(call.argument(0))):
            yield path
        elif call.name in ("builtins.globals", "builtins.locals"):
            yield script.name
    for node in script.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if node.attr == "__dict__" and (path := script.scopes.name(node.value)):
            yield path
    yield from _used_as_values(script)


def _used_as_values(script: Script) -> Iterator[str]:
    """`MODULES = {"a": metrics}`, `for one in (losses, metrics)`: names of theirs may be looked up anywhere."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in script.nodes(ast.Import, ast.ImportFrom)
        for alias in node.names  # type: ignore[attr-defined]  # both have them
    }
    for node in script.nodes(ast.Name, ast.Attribute):
        if isinstance(script.scopes.parents[node], ast.Attribute):
            continue
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in imported and (path := script.scopes.name(node)):
            yield path


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _name(node: ast.stmt) -> str | None:
    """The name of a definition; None for a statement that runs when the module is imported."""
    return getattr(node, "name", None)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for inner in nodes_in(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.alias) and inner.asname:
            yield inner.name.rpartition(".")[2]  # used under another name


def _top_statement(script: Script, node: ast.AST) -> ast.stmt:
    last = node
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, ast.Module):
            break
        last = parent
    assert isinstance(last, ast.stmt)
    return last
