"""What happens to a sample on its way into a batch: proven to be the same on any rank, alone, and without a trace.

A data set qualifies if looking a sample up neither draws random numbers nor changes anything; a collate function, if
every row of the batch comes from its own sample. What cannot be read counts as unproven.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.tables import of

DEPTH = 6  # data sets around data sets, functions that call functions: it ends somewhere
PLAIN_DATA_SETS = ("torch.utils.data.TensorDataset",)
AROUND_DATA_SETS = (
    "torch.utils.data.Subset",
    "torch.utils.data.ConcatDataset",
    "torch.utils.data.random_split",
)
WITH_TRANSFORMS = of(
    "torchvision.datasets", "MNIST FashionMNIST KMNIST EMNIST CIFAR10 CIFAR100 SVHN STL10 ImageFolder"
)
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
FRESH_METHODS = {"clone", "copy", "astype", "mean", "sum", "std", "item", "mul", "div", "sub", "tolist"}
READERS = ("json.load", "pickle.load")
WRITES = (ast.Global, ast.Nonlocal, ast.Delete, ast.Yield, ast.YieldFrom)


def is_plain_data_set(script: Script, node: ast.AST | None) -> bool:
    """Whether every sample can be loaded alone, on any rank, with the same result."""
    makers = list(_makers(script, node))
    return bool(makers) and all(_is_plain_maker(script, made) for made in makers)


def gives_tuples(script: Script, node: ast.AST | None) -> bool:
    """Whether every sample is a tuple, a list or a dict, and never a tensor."""
    makers = list(_makers(script, node))
    return bool(makers) and all(_is_tuple_maker(script, made) for made in makers)


def _makers(script: Script, node: ast.AST | None, depth: int = DEPTH) -> Iterator[ast.Call | None]:
    """The calls that make a data set, behind splits, subsets and functions; None for what cannot be followed."""
    made = script.scopes.value(node) if node is not None else None
    if isinstance(made, ast.Name):
        part = _from_tuple(script, made)
        made = script.scopes.value(part) if part is not None else None
    if not isinstance(made, ast.Call) or depth == 0:
        yield None
        return
    definition = script.scopes.definition(made.func)
    if script.scopes.name(made.func) in AROUND_DATA_SETS and made.args:
        first = made.args[0]
        for part in first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]:
            yield from _makers(script, part, depth - 1)
    elif isinstance(definition, ast.FunctionDef):
        yield from _makers(script, _only_result(definition), depth - 1)
    else:
        yield made


def _is_plain_maker(script: Script, made: ast.Call | None) -> bool:
    if made is None:
        return False
    name = script.scopes.name(made.func)
    if name in PLAIN_DATA_SETS:
        return True
    if name in WITH_TRANSFORMS:
        return _transforms_plainly(script, made)
    definition = script.scopes.definition(made.func)
    return isinstance(definition, ast.ClassDef) and loads_plainly(script, definition, made)


def _is_tuple_maker(script: Script, made: ast.Call | None) -> bool:
    if made is None:
        return False
    if script.scopes.name(made.func) in (*PLAIN_DATA_SETS, *WITH_TRANSFORMS):
        return True
    definition = script.scopes.definition(made.func)
    method = _methods(definition).get("__getitem__") if isinstance(definition, ast.ClassDef) else None
    return method is not None and _returns_tuples(method)


def returns_tuples(script: Script, node: ast.AST) -> bool:
    """Whether a function of the script gives tuples, lists or dicts."""
    function = script.scopes.definition(node)
    return isinstance(function, ast.FunctionDef) and _returns_tuples(function)


def _returns_tuples(function: ast.FunctionDef) -> bool:
    results = [one.value for one in ast.walk(function) if isinstance(one, ast.Return)]
    return bool(results) and all(isinstance(one, (ast.Tuple, ast.List, ast.Dict)) for one in results)


def _from_tuple(script: Script, name: ast.Name) -> ast.AST | None:
    """What stands behind one of the names of `train, test = ...`, which has no other meaning in its scope."""
    scope = script.scopes.lookup(name.id, script.scopes.scope_of[name])
    if scope is None or len(scope.values.get(name.id, [])) != 1:
        return None
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if not isinstance(target, ast.Tuple) or script.scopes.scope_of[node] is not scope:
            continue
        names = [script.told(one) for one in target.elts]
        if name.id in names:
            return _part(script, node.value, names.index(name.id))
    return None


def _part(script: Script, value: ast.expr, index: int) -> ast.AST | None:
    """One of several things: of a split all alike, of a tuple, of a function's only result."""
    if isinstance(value, ast.Call):
        if script.scopes.name(value.func) == "torch.utils.data.random_split":
            return value
        definition = script.scopes.definition(value.func)
        result = _only_result(definition) if isinstance(definition, ast.FunctionDef) else None
        return _part(script, result, index) if isinstance(result, ast.Tuple) else None
    return value.elts[index] if isinstance(value, ast.Tuple) and index < len(value.elts) else None


def _only_result(function: ast.FunctionDef) -> ast.expr | None:
    results = [one.value for one in ast.walk(function) if isinstance(one, ast.Return)]
    return results[0] if len(results) == 1 else None


# --- transforms


def _transforms_plainly(script: Script, call: ast.Call) -> bool:
    """A data set of torchvision: what it is given behind the folder is a constant, or a transform that is plain."""
    which = ("root", "train", "split", "download")
    given = [*call.args[1:], *(one.value for one in call.keywords if one.arg not in which)]
    return all(literal(one) is not None or is_plain_transform(script, one) for one in given)


def is_plain_transform(script: Script, node: ast.AST | None, depth: int = DEPTH) -> bool:
    """Whether a transform draws nothing: one of torchvision's that are fixed, several of them, or the script's own."""
    if node is None or depth == 0:
        return False
    found = script.scopes.value(node)
    match found:
        case ast.Constant(value=value):
            return value is None
        case ast.Lambda():
            return _is_pure(script, found, None)
        case ast.Call(func=func, args=[ast.List(elts=parts)]) if script.scopes.name(func) == COMPOSE:
            return all(is_plain_transform(script, one, depth - 1) for one in parts)
        case ast.Call(func=func):
            return script.scopes.name(func) in TRANSFORMS
    definition = script.scopes.definition(found) if found is not None else None
    return isinstance(definition, ast.FunctionDef) and _is_pure(script, definition, None)


# --- data sets of the script


def loads_plainly(script: Script, definition: ast.ClassDef, made: ast.Call) -> bool:
    """A map-style data set of the script whose __getitem__ does nothing but look up and compute."""
    bases = [script.scopes.name(base) for base in definition.bases]
    if bases not in (["torch.utils.data.Dataset"], [], ["builtins.object"]):
        return False
    methods = _methods(definition)
    if "__getitem__" not in methods or {"__iter__", "__getitems__", "__getattr__"} & methods.keys():
        return False
    return (
        _is_pure(script, methods["__getitem__"], (definition, made))
        and _has_pure_properties(script, definition, made)
        and _is_indexed_purely(script, definition)
    )


def _has_pure_properties(script: Script, definition: ast.ClassDef, made: ast.Call) -> bool:
    """`self.scale` may be a function, too."""
    decorated = (one for one in _methods(definition).values() if one.decorator_list)
    return all(
        _only_computes(script, one, (definition, made), DEPTH)
        for one in decorated
        if any(script.told(decorator).endswith("property") for decorator in one.decorator_list)
    )


def _is_indexed_purely(script: Script, but: ast.ClassDef) -> bool:
    """Whether `self.base[i]` is plain, whatever is indexed: no data set is made here that draws or leaves a trace."""
    for call in script.calls:
        if (call.name or "").startswith("torchvision.datasets.") and not _is_plain_maker(script, call.node):
            return False
        definition = script.scopes.definition(call.node.func)
        if not isinstance(definition, ast.ClassDef) or definition is but:
            continue
        parents = [script.scopes.definition(base) for base in definition.bases]
        if any(isinstance(one, ast.ClassDef) and "__getitem__" in _methods(one) for one in parents):
            return False
        method = _methods(definition).get("__getitem__")
        if method and not _is_pure(script, method, (definition, call.node)):
            return False
    return True


def _methods(definition: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in definition.body if isinstance(one, ast.FunctionDef)}


def _is_pure(
    script: Script,
    function: ast.FunctionDef | ast.Lambda,
    owner: tuple[ast.ClassDef, ast.Call] | None,
    depth: int = DEPTH,
) -> bool:
    """Whether a function looks up and computes, and nothing else; `owner`: its class, and the call that made it."""
    return not getattr(function, "decorator_list", []) and _only_computes(script, function, owner, depth)


def _only_computes(
    script: Script,
    function: ast.FunctionDef | ast.Lambda,
    owner: tuple[ast.ClassDef, ast.Call] | None,
    depth: int,
) -> bool:
    for node in ast.walk(function):
        if isinstance(node, WRITES) or _changes(node, function) or _is_in_place(script, node, function):
            return False
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return False  # what nobody wants the result of leaves a trace: `self.seen.add(i)`
        if isinstance(node, ast.Call) and not is_pure_call(script, node, owner, depth):
            return False
    return True


def _is_in_place(script: Script, node: ast.AST, function: ast.AST) -> bool:
    """`x = self.data[i]; x -= x.mean()` writes to the data, for the next epoch to see, if x is a view of them."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
        return False
    name = node.target.id
    arguments = getattr(function, "args").args  # noqa: B009 (a function's or a lambda's)
    if name in {one.arg for one in arguments}:
        return getattr(function, "name", "") != "__getitem__"  # its argument is the index
    around = (
        script.scopes.parents[one]
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
    )
    given = [one for one in around if not isinstance(one, ast.AugAssign)]
    return not given or not all(isinstance(one, ast.Assign) and _is_fresh(script, one.value) for one in given)


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
        one.value
        for one in ast.walk(function)
        if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in one.targets)
    ]
    return not made or not all(isinstance(one, (ast.Dict, ast.List, ast.ListComp)) for one in made)


def is_pure_call(
    script: Script, call: ast.Call, owner: tuple[ast.ClassDef, ast.Call] | None, depth: int
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
        return depth > 0 and _is_pure(script, definition, None, depth - 1)
    if name is not None or not isinstance(call.func, ast.Attribute):
        return False
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return owner is not None and _is_pure_of_self(script, call.func.attr, owner, depth)
    return call.func.attr in PURE_METHODS


def _is_pure_of_self(script: Script, name: str, owner: tuple[ast.ClassDef, ast.Call], depth: int) -> bool:
    """`self.load(i)`, a method; `self.transform(x)`, which the data set was given when it was made."""
    definition, made = owner
    methods = _methods(definition)
    if name in methods:
        return depth > 0 and _is_pure(script, methods[name], owner, depth - 1)
    stored = [
        node.value
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign)
        and any(script.told(target) == f"self.{name}" for target in node.targets)
    ]
    if len(stored) != 1 or "__init__" not in methods:
        return False
    given = _argument(methods["__init__"], made, stored[0]) if isinstance(stored[0], ast.Name) else None
    return is_plain_transform(script, given or stored[0]) and not _is_set_from_outside(script, name)


def _argument(init: ast.FunctionDef, made: ast.Call, parameter: ast.Name) -> ast.expr | None:
    """What a parameter of __init__ was given, or its default."""
    names = [one.arg for one in init.args.args][1:]
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
        one for one in script.nodes(ast.Attribute) if isinstance(one, ast.Attribute) and one.attr == name
    )
    return any(isinstance(one.ctx, ast.Store) and script.told(one.value) != "self" for one in stores)
