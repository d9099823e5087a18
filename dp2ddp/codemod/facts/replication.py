"""Replicas that exchange messages while they run: batch norm over all replicas (Synchronized-BatchNorm-PyTorch).

The protocol, under whatever names: behind `replicate`, `__data_parallel_replicate__(ctx, copy_id)` is called on each
layer of each replica. The first replica's layer hands out its master (`ctx.M = self.B`), the others get pipes from it
(`self.P = ctx.M.REGISTER(copy_id)`). In forward the first calls `self.B.RUN(message)`, the others
`self.P.SEND(message)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import Script

CALLBACK = "__data_parallel_replicate__"
PARTS_OF_WRAPPER = ("replicate", "scatter", "parallel_apply", "gather")


@dataclass(frozen=True)
class Protocol:
    """The names by which the replicas of one layer find and call each other."""

    master: str  # the layer's attribute
    pipe: str  # another
    register: str
    run_master: str
    run_slave: str

    @property
    def of_master(self) -> tuple[str, str]:
        return self.master, self.run_master

    @property
    def of_pipe(self) -> tuple[str, str]:
        return self.pipe, self.run_slave


@dataclass(frozen=True, eq=False)
class Master:
    """The class of a layer's master, and what its parts are called."""

    script: Script
    node: ast.ClassDef
    callback: str  # its attribute with the function of all messages
    protocol: Protocol


class Replication:
    """What happens behind `replicate`, in the files of a project."""

    def __init__(self, modules: Modules, reach: Reach) -> None:
        self.modules, self.reach = modules, reach

    @cached_property
    def masters(self) -> tuple[Master, ...]:
        """The classes that are to be brought to the ranks, each once."""
        masters = {master.node: master for master in self._read.values() if master} if self.is_active else {}
        return tuple(masters.values())

    @cached_property
    def unread(self) -> tuple[ast.FunctionDef, ...]:
        """The callbacks of layers that talk in a way that is not known, and are called."""
        return tuple(node for node, master in self._read.items() if not master) if self.is_active else ()

    @cached_property
    def is_active(self) -> bool:
        """Whether anybody calls the layers when they have been replicated; or else each is on its own."""
        return bool(self._read) and any(
            CALLBACK in (getattr(node, "attr", None), getattr(node, "value", None))
            and self.reach.runs(script, node)
            for script in self.modules.scripts
            for node in script.nodes(ast.Attribute, ast.Constant)
        )

    def is_message(self, script: Script, node: ast.AST) -> bool:
        """Whether a node is part of the exchange itself: in a master's class, or a call of a layer's master or pipe."""
        masters = [master for master in self._read.values() if master]
        if any(script.scopes.owner_class(node) is master.node for master in masters):
            return True
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=owner), attr=method)):
                return any(
                    (owner, method) in (master.protocol.of_master, master.protocol.of_pipe)
                    for master in masters
                )
        return False

    @cached_property
    def _read(self) -> dict[ast.FunctionDef, Master | None]:
        """The layers' callbacks, with the masters that they talk through, where these can be read."""
        read = {
            node: self._master(script, node)
            for script in self.modules.scripts
            for node in script.nodes(ast.FunctionDef)
            if isinstance(node, ast.FunctionDef) and node.name == CALLBACK and self.reach.runs(script, node)
        }
        protocols: dict[ast.AST, set[Protocol]] = {}
        for master in filter(None, read.values()):
            protocols.setdefault(master.node, set()).add(master.protocol)
        return {
            node: master if master and len(protocols[master.node]) == 1 else None
            for node, master in read.items()
        }

    @property
    def changes_wrappers(self) -> bool:
        """Whether wrappers have parts of the script's own, or what brings replicas together wraps them anew."""
        return self.puts_parts or bool(self.masters)

    @cached_property
    def puts_parts(self) -> bool:
        """Whether a part is put in the place of a wrapper's own: `net.replicate = ...`."""
        return any(
            self.reach.runs(script, node)
            and not _is_of_torch(script, owner)
            and not (isinstance(owner, ast.Name) and owner.id == "self")  # a layer's own, or a subclass's
            for script in self.modules.scripts
            for node, owner in parts_put(script)
        )

    def _master(self, script: Script, callback: ast.FunctionDef) -> Master | None:
        names = self._names(callback)
        made = self._made(script, callback, names[0]) if names else None
        if names is None or made is None:
            return None
        master, pipe, register = names
        runs, sends = self._used_of(master, made[1]) - {register}, self._used_of(pipe, made[1])
        if len(runs) != 1 or len(sends) != 1:
            return None
        protocol = Protocol(master, pipe, register, runs.pop(), sends.pop())
        attribute = _callback_attribute(made[1], protocol.run_master)
        takes_messages = protocol.run_master in _taking_one(made[1]) and any(
            protocol.run_slave in _taking_one(kind)
            for script in self.modules.scripts
            for kind in script.nodes(ast.ClassDef)
        )
        if attribute is None or not takes_messages or register not in _taking_one(made[1]):
            return None
        return Master(*made, attribute, protocol)

    def _names(self, callback: ast.FunctionDef) -> tuple[str, str, str] | None:
        """The layer's attributes for its master and its pipe, and the method of a master that gives pipes."""
        names = [argument.arg for argument in callback.args.args]
        if len(names) != 3:
            return None
        handed: dict[str, str] = {}  # by the attribute of the context: that of the layer
        pipes: dict[
            str, tuple[str, str]
        ] = {}  # by the attribute of the layer: that of the context, and REGISTER
        for node in ast.walk(callback):
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=context), attr=shared)],
                    value=ast.Attribute(value=ast.Name(id=layer), attr=own),
                ) if [layer, context] == names[:2]:
                    handed[shared] = own
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=layer), attr=own)],
                    value=ast.Call(
                        func=ast.Attribute(
                            value=ast.Attribute(value=ast.Name(id=context), attr=shared), attr=register
                        )
                    ),
                ) if [layer, context] == names[:2]:
                    pipes[own] = (shared, register)
        if len(handed) != 1 or len(pipes) != 1:
            return None
        ((shared, master),) = handed.items()
        ((pipe, (queue, register)),) = pipes.items()
        return (master, pipe, register) if queue == shared else None

    def _used_of(self, attribute: str, made: ast.ClassDef) -> set[str]:
        """What is used of an attribute of layers, outside of the class that its value is made from."""
        return {
            node.attr
            for script in self.modules.scripts
            for node in script.nodes(ast.Attribute)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == attribute
            and script.scopes.owner_class(node) is not made
            and self.reach.runs(script, node)
        }

    def _made(
        self, script: Script, callback: ast.FunctionDef, attribute: str
    ) -> tuple[Script, ast.ClassDef] | None:
        """The class of the project that a layer's master is made from, with one method of the layer."""
        layer = script.scopes.parents[callback]
        classes = []
        for node in ast.walk(layer):
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(), attr=name)],
                    value=ast.Call(func=function) as call,
                ) if name == attribute and len(call.args) + len(call.keywords) == 1:
                    classes.append(self.modules.definition(script, function))
        if len(classes) != 1 or classes[0] is None or not isinstance(classes[0][1], ast.ClassDef):
            return None
        return classes[0][0], classes[0][1]


def _callback_attribute(made: ast.ClassDef, run_master: str) -> str | None:
    """The attribute that a constructor sets to its only argument, and that RUN calls with one argument."""
    methods = {statement.name: statement for statement in made.body if isinstance(statement, ast.FunctionDef)}
    if "__init__" not in methods or run_master not in methods or len(methods["__init__"].args.args) != 2:
        return None
    given = methods["__init__"].args.args[1].arg
    for node in ast.walk(methods["__init__"]):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=ast.Name(id=name)
            ) if name == given and _calls_own(methods[run_master], attribute):
                return attribute
    return None


def _taking_one(kind: ast.AST) -> set[str]:
    """The methods of a class that take one argument."""
    return {
        node.name
        for node in getattr(kind, "body", ())
        if isinstance(node, ast.FunctionDef) and len(node.args.args) == 2
    }


def _calls_own(method: ast.FunctionDef, attribute: str) -> bool:
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), args=[_], keywords=[]) if (
                name == attribute
            ):
                return True
    return False


def parts_put(script: Script) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`net.replicate = ...`, `setattr(net, "gather", ...)`: what is replaced, and of whom."""
    for node in script.nodes(ast.Attribute, ast.Call):
        match node:
            case ast.Attribute(value=owner, attr=part, ctx=ast.Store()) if part in PARTS_OF_WRAPPER:
                yield node, owner
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=part), _]) if (
                part in PARTS_OF_WRAPPER
            ):
                yield node, owner


def replaced_in_torch(script: Script) -> Iterator[ast.expr]:
    """`torch.nn.parallel.data_parallel.replicate = ...`, `nn.DataParallel.replicate = ...`."""
    return (node for node, owner in parts_put(script) if _is_of_torch(script, owner))


def _is_of_torch(script: Script, owner: ast.expr) -> bool:
    return (script.scopes.name(owner) or "").startswith("torch.")
