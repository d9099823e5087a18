"""What a name, an attribute or a text of the program's may mean: its functions, and methods by their names alone.

And which of its classes are layers, which are torch.autograd.Functions.
"""

import ast

from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.knowledge.reading_methods import MODULE_HOMES
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, Function, functions_of, looked_up
from dp2ddp.codemod.model.texts import pattern_of

OF_FUNCTION = ("torch.autograd.Function", "torch.autograd.function.Function")
NO_MODULES = (
    *("builtins.", "torchvision.transforms", "torchvision.datasets", "torch.utils.", "torch.optim."),
    *("abc.", "enum.", "typing.", "collections.", "argparse.", "threading."),
)
SELF = ("self", "type(self)", "self.__class__", "super()")


def functions_named(module: Module, node: ast.AST) -> list[tuple[Module, Function]]:
    """The functions of the program that a name or attribute means; methods by their names alone."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return []
    program, dotted = module.program, module.name(node) or ""
    home, _, name = dotted.rpartition(".")
    owner, kind = program.class_named(home) or (module, None)
    if own := next(program.methods_of(owner, kind, name), None):
        return [own]  # `Base.forward(self, x)`
    there = program.by_name.get(home)
    nodes = [each.node for each in there.top.bindings.get(name, ())] if there else []
    functions = [(there, each) for each in nodes if isinstance(each, FUNCTIONS)]
    is_of_library = bool(dotted) and not program.is_local(dotted)
    if functions or is_of_library or isinstance(node, ast.Name):
        return functions  # type: ignore[return-value]  # `there` is a file
    is_read = isinstance(node.ctx, ast.Load)
    methods = program.methods_named.get(node.attr, ())
    return [each for each in methods if not (is_read and _is_setter(each[1]))]


def methods_by_text(module: Module, node: ast.AST) -> list[tuple[Module, Function]]:
    """The methods that a text may name: of `self`, those of its class and its kin; of others, by their names alone.

    Where a text says nothing, those of all layers. What is looked up in a file or a library is no method.
    """
    owner, key = looked_up(node) or (None, None)
    if owner is None or key is None or _is_file(module, owner):
        return []
    own = module.enclosing(owner, ast.ClassDef) if ast.unparse(owner) in SELF else None
    text = pattern_of(module.value(key))
    named = ((name, methods) for name, methods in module.program.methods_named.items() if name[:2] != "__")
    matching = (each for name, methods in named if text.fullmatch(name) for each in methods)
    if own is None:
        is_unknown = text.pattern == ".*"
        return [each for each in matching if not is_unknown or is_layer(each[0], _kind(*each))]
    return [each for each in matching if _are_kin(module, own, *each)]


def _is_file(module: Module, owner: ast.expr) -> bool:
    """Whether an owner is something of a library, or a file of the program: `sys.modules[__name__]`."""
    if name := module.name(owner):
        return name in module.program.by_name or not module.program.is_local(name)
    value = module.value(owner)
    has_other = len(getattr(value, "args", ())) > 1  # `sys.modules.get(name, self.block)`
    return module.module_key(value) is not None and not has_other


def _are_kin(module: Module, own: ast.ClassDef, home: Module, method: Function) -> bool:
    """Whether a method is of a class, or of one that derives from it or that it is derived from."""
    above = [each for _, each in module.program.lineage(module, own)]
    below = [each for _, each in module.program.lineage(home, _kind(home, method))]
    return own in below or below[0] in above


def _is_setter(function: ast.FunctionDef) -> bool:
    """`@size.setter`, which reading does not call."""
    return any(getattr(each, "attr", "") in ("setter", "deleter") for each in function.decorator_list)


def _kind(module: Module, method: Function) -> ast.ClassDef:
    return module.parents[method]  # type: ignore[return-value]  # of a method


def is_layer(module: Module, node: ast.ClassDef) -> bool:
    """Whether a class derives from Module; one with a forward may, if a base of it is not known.

    No subclass of DataParallel does: its own methods run once, not for each replica.
    """
    names = {home.name(base) or "" for home, base in module.program.bases(module, node)}
    classes = (kind for _, kind in module.program.lineage(module, node))
    has_forward = any(each.name == "forward" for kind in classes for each in functions_of(kind))
    others = (name for name in names - {*OF_FUNCTION, *CLASSES} if not module.program.class_named(name))
    unknown = (name for name in others if not name.startswith(NO_MODULES))
    return any(has_forward or name.startswith(MODULE_HOMES) for name in unknown)


def is_autograd_function(module: Module, node: ast.AST | None) -> bool:
    """Whether a class is a torch.autograd.Function."""
    return isinstance(node, ast.ClassDef) and any(module.name(base) in OF_FUNCTION for base in node.bases)
