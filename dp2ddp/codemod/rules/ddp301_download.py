"""Download once.

`MNIST(root, download=True)` becomes `rank0_first(MNIST, root, download=True)`: rank 0 calls it before the others.

Ranks that download into one place at once tear what they load; behind rank 0 they find it there.

A function or class of the program is left alone, what it does is converted there; but not where it hands
`download` on unsaid (`super().__init__(*args, **kwargs)`), or has no `__init__` of the program's, or derives from a
data set of torch_geometric: the library calls its `process`, and keeps the files.

docs/semantics.md#downloads.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.knowledge.functions import Does
from dp2ddp.codemod.looks.mentions import handed_to
from dp2ddp.codemod.looks.uses import bases_in_libraries, may_be_true, row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import handed
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff

# They download, and process what they have, into files; their subclasses, too.
BECAUSE = "rank 0 downloads, and the others find it there"
GRAPHS = ("torch_geometric.datasets.", "torch_geometric.data.InMemoryDataset", "torch_geometric.data.Dataset")


class Download(Rule):
    examples = (
        diff("""
              import torch
              from torchvision import datasets
            - train = datasets.CIFAR10("data", train=True, download=not args.offline)
            - net = torch.hub.load("pytorch/vision", "resnet50")
            + train = rank0_first(datasets.CIFAR10, "data", train=True, download=not args.offline)
            + net = rank0_first(torch.hub.load, "pytorch/vision", "resnet50")
        """),
        Untouched("""
            from torchvision import datasets
            class Digits:
                def __init__(self, download): ...
            train = datasets.CIFAR10("data", train=True, download=False)
            test = Digits(download=True)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if _downloads(module, call):
                yield call_by(call.node, "rank0_first", BECAUSE)
        yield from handed_to(module, {Does.DOWNLOAD: "rank0_first"}, BECAUSE)


def _downloads(module: Module, call: Call) -> bool:
    if (row := row_of(module, call)) is not None:
        return row.does is Does.DOWNLOAD
    if any(each.startswith(GRAPHS) for each in (call.name or "", *bases_in_libraries(module, call.name))):
        return True
    if _is_own(module, call):
        return False
    return may_be_true(call.argument(None, "download")) or call.method == "from_pretrained"


def _is_own(module: Module, call: Call) -> bool:
    """Whether the program's own code downloads: that is changed, once, and not each place that calls it."""
    called = call.node.func
    if not isinstance(called, ast.Subscript):
        return _downloads_itself(module, call.name)
    tables = module.program.flow.origins(module, called.value)  # `SETS[name](root, download=True)`
    made = [
        (home, home.name(each))
        for home, table in tables
        if isinstance(table, ast.Dict)
        for each in table.values
    ]
    return bool(made) and all(_downloads_itself(*each) for each in made)


def _downloads_itself(module: Module, name: str | None) -> bool:
    """A function of the program, or a class that says what making an object does, or is made of one that does."""
    home, made = module.program.definition(name) or (module, None)
    if not isinstance(made, ast.ClassDef):
        return module.program.is_local(name) and not (made and _hands_on(home, made))
    return any(not _hands_on(*each) for each in module.program.methods_of(home, made, "__init__"))


def _hands_on(module: Module, function: ast.AST) -> bool:
    """Whether `download` may reach a library unsaid: `super().__init__(*args, **kwargs)`, or at its place."""
    if not isinstance(function, ast.FunctionDef):
        return False
    own = {"download", *([function.args.kwarg.arg] if function.args.kwarg else [])}
    calls = (each for each in module.calls_in(function) if not module.program.is_local(each.name))
    return any(
        isinstance(value, ast.Name) and value.id in own
        for call in calls
        if function.name != "__init__" or call.method == "__init__"
        for given, value in handed(call.node)
        if getattr(given, "arg", None) is None
    )
