"""All files of a program, as one model: names are followed from file to file."""

import ast
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from pathlib import Path

from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.model.flow import Flow, Source
from dp2ddp.codemod.model.modules import Call, Module, Seen
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, all_from, functions_of, last_name
from dp2ddp.codemod.model.reach import Reach
from dp2ddp.codemod.model.scopes import Binding, Binds, Scope
from dp2ddp.source.projects import Project

MAIN = "__main__"


class Program:
    """The script that is started, and the local modules that its imports reach.

    `starts`: functions of the script that a command calls.
    """

    def __init__(self, project: Project, starts: frozenset[str] = frozenset()) -> None:
        self.project, self.starts = project, starts
        entry = project.entry_module or (project.entry.path.stem if project.entry.path else MAIN)
        self.by_name: dict[str, Module] = {}
        self.entry = Module(project.entry, entry, self, tuple(entry.split(".")[:-1]))
        for name in (entry, *project.entry_names):
            self.by_name[name] = self.entry
        for local in project.modules:
            is_package = Path(local.source.name).name == "__init__.py"
            parts = tuple(local.name.split("."))
            module = Module(local.source, local.name, self, parts if is_package else parts[:-1])
            for name in (local.name, *local.other_names):
                self.by_name[name] = module

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """Each file once, the entry script first."""
        return tuple(dict.fromkeys([self.entry, *self.by_name.values()]))

    @cached_property
    def calls(self) -> tuple[tuple[Module, Call], ...]:
        return tuple((module, call) for module in self.modules for call in module.calls)

    def is_local(self, dotted: str | None) -> bool:
        """Whether a name is of the program's own files."""
        return dotted is not None and self._home(dotted) is not None

    def is_absent(self, dotted: str) -> bool:
        """Whether a name is of the program's own packages, but none of their files has it."""
        home, path = self._home(dotted) or (self.entry, [])
        return path != [] and path[0] not in home.top.bindings and not home.stars

    def _home(self, dotted: str) -> tuple[Module, list[str]] | None:
        """The file that a dotted name begins with, and the rest of it."""
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            module = self.by_name.get(".".join(parts[:count]))
            if module is not None and (count < len(parts) or not self._is_hidden(dotted, module)):
                return module, parts[count:]
        return None

    def _is_hidden(self, dotted: str, module: Module) -> bool:
        """Whether a package calls something else by the name of its file: `from .resnet import resnet`."""
        package, _, name = dotted.rpartition(".")
        there = self.by_name.get(package)
        bindings = there.top.bindings.get(name, ()) if there else ()
        others = (each for each in bindings if self.by_name.get(each.dotted) is not module)
        return any(each.how in (Binds.IMPORT, Binds.DEFINITION) for each in others)

    def definition(self, dotted: str | None) -> tuple[Module, ast.AST] | None:
        """The function or class of the program that a dotted name means, and its file."""
        home = self._home(dotted) if dotted else None
        if home is None:
            return None
        module, path = home
        scope: Scope | None = module.top
        definition: ast.AST | None = None
        for name in path:
            bindings = scope.bindings.get(name, []) if scope else []
            definition = next(
                (each.node for each in reversed(bindings) if each.how is Binds.DEFINITION), None
            )
            if definition is None:
                return None
            body = definition.body if isinstance(definition, ast.ClassDef) else []
            scope = module.scope_of[body[0]] if body else None
        return (module, definition) if definition is not None else None

    def class_named(self, dotted: str | None) -> tuple[Module, ast.ClassDef] | None:
        """The class of the program that a dotted name means, and its file."""
        module, node = self.definition(dotted) or (None, None)
        return (module, node) if module and isinstance(node, ast.ClassDef) else None

    def canonical(self, dotted: str, seen: Seen = frozenset()) -> str | None:
        """The name under which a thing is known: through the program's files to where it comes from."""
        home = self._home(dotted)
        if home is None:
            return canonical(dotted)
        module, rest = home
        if not rest:
            return dotted
        name, *rest = rest
        if name in module.top.bindings:
            meant = module.meaning(name, module.top, seen=seen)
        else:
            meant = self.starred(module, name, seen)
        if meant is None or not rest:
            return meant
        whole = ".".join([meant, *rest])
        return self.canonical(whole, seen) if not self.is_local(meant) else whole

    def starred(self, module: Module, name: str, seen: Seen = frozenset()) -> str | None:
        """What a name means that `from library import *` may have brought."""
        for home in module.stars:
            key = (home, name, 0)
            if key in seen:
                continue
            inner = self.by_name.get(home)
            if inner is None:
                dotted = canonical(f"{home}.{name}")
                if knows(dotted):
                    return dotted
            elif name in inner.top.bindings:
                return inner.meaning(name, inner.top, seen=seen | {key})
            elif meant := self.starred(inner, name, seen | {key}):
                return meant
        return None

    @cached_property
    def reach(self) -> Reach:
        """Which of its code can run when the script is started."""
        return Reach(self)

    @cached_property
    def flow(self) -> Flow:
        """Where its values come from."""
        return Flow(self)

    @cached_property
    def attributes(self) -> dict[str, list[tuple[Module, Binding]]]:
        """By name alone, what attributes of anything and variables of classes are set to: `x.place`, `self.place`."""
        attributes: dict[str, list[tuple[Module, Binding]]] = {}
        for module in self.modules:
            for name, bindings in module.attributes.items():
                attributes.setdefault(name, []).extend((module, each) for each in bindings)
        return attributes

    def calls_of(self, module: Module, function: ast.AST) -> Iterator[tuple[Module, Call]]:
        """The calls of a function; of a method also those of whatever has its name and cannot be told."""
        is_method = isinstance(module.parents[function], ast.ClassDef)
        for other, call in self._calls_by_name.get(getattr(function, "name", ""), ()):
            definition = other.definition(call.node.func)
            if definition[1] is function if definition else is_method and bool(call.method):
                yield other, call

    def called(self, module: Module, called: ast.AST) -> tuple[Module, ast.AST] | None:
        """The function of the program that a call runs; of a class, what makes its objects."""
        definition = module.definition(called)
        if definition is None or not isinstance(definition[1], ast.ClassDef):
            return definition
        return next(self.methods_of(*definition, "__init__"), None)

    def methods_of(
        self, module: Module, kind: ast.AST | None, name: str
    ) -> Iterator[tuple[Module, ast.FunctionDef]]:
        """The methods of a name of a class, and of the program's own classes that it is derived from."""
        methods = ((home, each) for home, kind in self.lineage(module, kind) for each in functions_of(kind))
        return (each for each in methods if each[1].name == name)

    def functions_given(self, module: Module, given: ast.expr) -> list[tuple[Module, ast.AST]]:
        """What is handed on to be called: a function, a part of one, or a method, of whatever object."""
        match given:
            case ast.Lambda():
                return [(module, given)]
            case ast.Call(func=func, args=[first, *_]) if module.name(func) == "functools.partial":
                return self.functions_given(module, first)
        definition = module.definition(given)
        return [definition] if definition else [*self.methods_named.get(last_name(given), ())]

    def bindings(self, module: Module, node: ast.AST) -> list[tuple[Module, Binding]]:
        """All that binds a name, or an attribute of that name of anything."""
        if isinstance(node, ast.Name):
            return [(module, each) for each in module.bindings(node)]
        return self.attributes.get(node.attr, []) if isinstance(node, ast.Attribute) else []

    def stands_under(
        self,
        module: Module,
        node: ast.AST,
        asks: Callable[[Module, ast.AST, ast.AST], bool],
        of_calls: Callable[[Iterable[bool]], bool],
        seen: Set[ast.AST] = frozenset(),
    ) -> bool:
        """Whether what is asked holds of something around a node, or around all (any) calls of its function.

        `asks`: of a node around, and what of it the node is in.
        """
        for parent, inner in module.steps(node):
            if asks(module, parent, inner):
                return True
            if isinstance(parent, NAMED_FUNCTIONS):
                if parent in seen:
                    return of_calls is all  # of functions that call each other, the other calls decide
                calls, seen = self.calls_of(module, parent), seen | {parent}
                own = (
                    (other, each) for other, each in calls if each.name is None or self.is_local(each.name)
                )
                return of_calls(
                    self.stands_under(home, each.node, asks, of_calls, seen) for home, each in own
                )
        return False

    def closure(self, module: Module, function: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
        """A function, and the functions, classes and methods of its own that it calls or reads, and so on."""
        return all_from([(module, function)], _called_in)

    def lineage(
        self, module: Module, node: ast.AST | None, below: Set[ast.AST] = frozenset()
    ) -> Iterator[tuple[Module, ast.ClassDef]]:
        """A class, and the program's own classes that it is derived from; nothing of what is no class."""
        if isinstance(node, ast.ClassDef) and node not in below:
            yield module, node
            for base in node.bases:
                home, kind = module.definition(base) or (module, None)
                yield from self.lineage(home, kind, below | {node})

    def bases(self, module: Module, node: ast.AST | None) -> Iterator[Source]:
        """All that a class is derived from, as it is named."""
        return ((home, base) for home, kind in self.lineage(module, node) for base in kind.bases)

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[Module, Call]]]:
        calls: dict[str, list[tuple[Module, Call]]] = {}
        for module, call in self.calls:
            name = call.node.func.id if isinstance(call.node.func, ast.Name) else call.method
            resolved = (call.name or "").rpartition(".")[2]
            for each in {name, resolved} - {""}:
                calls.setdefault(each, []).append((module, call))
        return calls

    @cached_property
    def methods_named(self) -> dict[str, list[tuple[Module, ast.FunctionDef]]]:
        """The methods that its classes have, by name."""
        named: dict[str, list[tuple[Module, ast.FunctionDef]]] = {}
        for module in self.modules:
            for node in module.all(ast.FunctionDef):
                if isinstance(module.parents[node], ast.ClassDef):
                    named.setdefault(node.name, []).append((module, node))
        return named

    @cached_property
    def methods(self) -> frozenset[str]:
        """The names of all functions that the program defines."""
        return frozenset(node.name for module in self.modules for node in module.all(ast.FunctionDef))


def _called_in(part: tuple[Module, ast.AST]) -> Iterator[tuple[Module, ast.AST]]:
    for each in ast.walk(part[1]):
        called = each.func if isinstance(each, ast.Call) else each
        if (isinstance(called, ast.Attribute) or called is not each) and (made := part[0].definition(called)):
            yield made
