"""Functions that look up and compute, and nothing else: no random numbers, no trace.

What cannot be read counts as doing more.
"""

from __future__ import annotations

import ast

from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.tables import of

TRANSFORMS = {
    *of("torchvision.transforms", "ToTensor Normalize Resize CenterCrop Grayscale Pad ToPILImage Scale"),
    *of("torchvision.transforms", "PILToTensor ConvertImageDtype FiveCrop TenCrop"),
}
COMPOSE = "torchvision.transforms.Compose"
# What __getitem__ may call: tensors from data and back, shapes, text, files that are read.
PURE = {
    *of(
        "builtins",
        "len int float str bool abs min max sum range tuple list dict sorted zip enumerate isinstance",
    ),
    *of("torch", "tensor as_tensor from_numpy stack cat zeros ones full arange float long sin cos exp"),
    *of("torch", "linspace where clamp LongTensor FloatTensor Tensor load"),
    *of("numpy", "array asarray load float32 int64 stack concatenate transpose zeros ones ascontiguousarray"),
    *of("cv2", "imread resize cvtColor"),
    *("os.path.join", "PIL.Image.open", "skimage.io.imread", "imageio.imread", "soundfile.read"),
    *("json.loads", "pickle.loads", "torchaudio.load"),
}
PURE_METHODS = {
    *("float", "long", "double", "half", "int", "bool", "to", "view", "reshape"),
    *("permute", "transpose", "unsqueeze", "squeeze", "clone", "copy", "astype", "item", "tolist"),
    *("numpy", "size", "dim", "mean", "sum", "std", "div", "mul", "add"),
    *("sub", "contiguous", "flatten", "type", "convert", "t", "get", "split", "strip"),
    *("format", "resize", "crop", "items", "keys", "values", "lower", "flip"),
}
FRESH = {  # results that share no memory with what they were made of
    *of("builtins", "len int float str bool"),
    *of("torch", "tensor stack cat zeros ones full arange linspace load sin cos exp"),
    *of("numpy", "array stack concatenate zeros ones load float32 int64"),
    *("cv2.imread", "cv2.resize", "skimage.io.imread", "imageio.imread"),
}
# What an operator, or one of PURE, calls on an object of the script's own: `self.jitter * x`.
OPERATIONS = {
    f"__{before}{name}__"
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
    for before in ("", "r", "i")
} | {
    *("__getitem__", "__contains__", "__neg__", "__pos__", "__invert__", "__abs__", "__round__", "__index__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__float__", "__int__", "__bool__"),
}
FRESH_METHODS = {"clone", "copy", "astype", "mean", "sum", "std", "item", "mul", "div", "sub", "tolist"}
READERS = ("json.load", "pickle.load")
# The functions that a question has come by: asked once more, of a circle, the others decide.
Seen = set[ast.AST] | None
WRITES = (ast.Global, ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom)


def methods_of(definition: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {
        statement.name: statement for statement in definition.body if isinstance(statement, ast.FunctionDef)
    }


def is_pure(
    script: Script,
    function: ast.FunctionDef | ast.Lambda,
    owner: tuple[ast.ClassDef, ast.Call] | None,
    seen: Seen = None,
) -> bool:
    """Whether a function looks up and computes, and nothing else; `owner`: its class, and the call that made it."""
    return not getattr(function, "decorator_list", []) and only_computes(script, function, owner, seen)


def only_computes(
    script: Script,
    function: ast.FunctionDef | ast.Lambda,
    owner: tuple[ast.ClassDef, ast.Call] | None,
    seen: Seen = None,
) -> bool:
    """Whether a function neither draws nor changes anything, whatever decorates it."""
    seen = set() if seen is None else seen
    if function in seen:
        return True
    seen.add(function)
    for node in ast.walk(function):
        if isinstance(node, WRITES) or _changes(node, function) or _is_in_place(script, node, function):
            return False
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return False  # what nobody wants the result of leaves a trace: `self.seen.add(i)`
        if isinstance(node, ast.Call) and not is_pure_call(script, node, owner, seen):
            return False
    return True


def _is_in_place(script: Script, node: ast.AST, function: ast.AST) -> bool:
    """`x = self.data[i]; x -= x.mean()` writes to the data, for the next epoch to see, if x is a view of them."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
        return False
    name = node.target.id
    arguments = getattr(function, "args").args  # noqa: B009 (a function's or a lambda's)
    if name in {argument.arg for argument in arguments}:
        return getattr(function, "name", "") != "__getitem__"  # its argument is the index
    around = (
        script.scopes.parents[node]
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    )
    given = [parent for parent in around if not isinstance(parent, ast.AugAssign)]
    return not given or not all(
        isinstance(argument, ast.Assign) and _is_fresh(script, argument.value) for argument in given
    )


def _is_fresh(script: Script, value: ast.expr) -> bool:
    """Whether an expression makes a thing of its own, and no view of another."""
    if isinstance(value, ast.Call):
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        return (script.scopes.name(value.func) or "") in FRESH or method in FRESH_METHODS
    return isinstance(value, (ast.Constant, ast.BinOp, ast.List, ast.ListComp, ast.JoinedStr))


def _changes(node: ast.AST, function: ast.AST) -> bool:
    """Whether something is changed that is not a dict or list which the function has made itself."""
    if not isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(node.ctx, ast.Load):
        return False
    if isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return True
    name = node.value.id
    made = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    return not made or not all(isinstance(node, (ast.Dict, ast.List, ast.ListComp)) for node in made)


def is_pure_call(
    script: Script, call: ast.Call, owner: tuple[ast.ClassDef, ast.Call] | None, seen: Seen = None
) -> bool:
    name = script.scopes.name(call.func)
    if name == "builtins.open":
        mode = literal(call.args[1]) if len(call.args) > 1 else "r"
        return mode in ("r", "rb") and not call.keywords
    if name in READERS:  # of a file that is opened here; one that is kept open has a place of its own
        return len(call.args) == 1 and isinstance(call.args[0], ast.Name)
    if name in PURE:
        return True
    definition = script.scopes.definition(call.func)
    if isinstance(definition, ast.FunctionDef):
        return is_pure(script, definition, None, seen)
    if name is not None or not isinstance(call.func, ast.Attribute):
        return False
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return owner is not None and _is_pure_of_self(script, call.func.attr, owner, seen)
    if call.func.attr == "get" and _may_take_from_a_queue(call):
        return False
    return call.func.attr in PURE_METHODS and _is_no_other(script, call.func.attr, seen)


def _is_no_other(script: Script, method: str, seen: Seen) -> bool:
    """Whether classes of the script have no method of this name, or one that is plain: `augment.crop(x)`."""
    if method not in script.own_methods:
        return True
    classes = (node for node in script.nodes(ast.ClassDef) if isinstance(node, ast.ClassDef))
    methods = (methods_of(class_).get(method) for class_ in classes)
    return all(is_pure(script, item, None, seen) for item in methods if item)


def _may_take_from_a_queue(call: ast.Call) -> bool:
    """`queue.get()`, `queue.get(True, 5)`; a dict's get has a key."""
    return not call.args or bool(call.keywords) or isinstance(literal(call.args[0]), bool)


def _is_pure_of_self(script: Script, name: str, owner: tuple[ast.ClassDef, ast.Call], seen: Seen) -> bool:
    """`self.load(i)`, a method; `self.transform(x)`, which the data set was given when it was made."""
    definition, made = owner
    methods = methods_of(definition)
    if name in methods:
        return is_pure(script, methods[name], owner, seen)
    stored = [
        node.value
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign)
        and any(script.text_of(target) == f"self.{name}" for target in node.targets)
    ]
    if len(stored) != 1 or "__init__" not in methods:
        return False
    given = _argument(methods["__init__"], made, stored[0]) if isinstance(stored[0], ast.Name) else None
    return is_plain_transform(script, given or stored[0]) and not _is_set_from_outside(script, name)


def _argument(init: ast.FunctionDef, made: ast.Call, parameter: ast.Name) -> ast.expr | None:
    """What a parameter of __init__ was given, or its default."""
    names = [argument.arg for argument in init.args.args][1:]
    if parameter.id not in names:
        return None
    place = names.index(parameter.id)
    for keyword in made.keywords:
        if keyword.arg == parameter.id:
            return keyword.value
    if place < len(made.args):
        return made.args[place]
    behind = len(names) - place
    return init.args.defaults[-behind] if behind <= len(init.args.defaults) else None


def _is_set_from_outside(script: Script, name: str) -> bool:
    """`train_set.transform = other`."""
    stores = (
        node for node in script.nodes(ast.Attribute) if isinstance(node, ast.Attribute) and node.attr == name
    )
    return any(isinstance(store.ctx, ast.Store) and script.text_of(store.value) != "self" for store in stores)


def is_plain_transform(script: Script, node: ast.AST | None, seen: Seen = None) -> bool:
    """Whether a transform draws nothing: one of torchvision's that are fixed, several of them, or the script's own."""
    seen = set() if seen is None else seen
    transform = script.scopes.value(node)
    if transform is None or transform in seen:
        return False  # a list of transforms that holds itself
    seen.add(transform)
    match transform:
        case ast.Constant(value=value):
            return value is None
        case ast.Lambda():
            return is_pure(script, transform, None)
        case ast.Call(func=func, args=[ast.List(elts=parts)]) if script.scopes.name(func) == COMPOSE:
            return all(is_plain_transform(script, part, {*seen}) for part in parts)
        case ast.Call(func=func):
            return script.scopes.name(func) in TRANSFORMS
    definition = script.scopes.definition(transform)
    return isinstance(definition, ast.FunctionDef) and is_pure(script, definition, None)
