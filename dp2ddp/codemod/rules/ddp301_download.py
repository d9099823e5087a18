"""DDP301: downloads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does
from dp2ddp.codemod.looks.uses import row_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.rule import Finding, Rule, Untouched, call_by, diff

# They download, and process what they have, into files; their subclasses, too.
GRAPHS = ("torch_geometric.datasets.", "torch_geometric.data.InMemoryDataset", "torch_geometric.data.Dataset")


class Download(Rule):
    """Download once.

    ## What it does
    `MNIST(root, download=True)` becomes `rank0_first(MNIST, root, download=True)`: rank 0 calls it before the others.

    ## Why
    Ranks that download into one place at once tear what they load; behind rank 0 they find it there.

    ## Safety
    A class of the program that has an `__init__` is left alone: what it does is converted there. One that derives from
    a data set of torch_geometric is not: the library calls its `process`, and keeps the files.

    ## References
    docs/semantics.md#downloads.
    """

    code = "DDP301"
    name = "download"
    nodes = ("Call",)
    examples = (
        diff("""
              import torch, torch_geometric
              from torchvision import datasets
              class Pairs(datasets.CIFAR10):
                  def __getitem__(self, i): ...
            - train = datasets.CIFAR10("data", train=True, download=not args.offline)
            + train = rank0_first(datasets.CIFAR10, "data", train=True, download=not args.offline)
            - pairs = Pairs("data", download=True)
            + pairs = rank0_first(Pairs, "data", download=True)
            - net = torch.hub.load("pytorch/vision", "resnet50")
            + net = rank0_first(torch.hub.load, "pytorch/vision", "resnet50")
            - graphs = torch_geometric.datasets.TUDataset("data", "PROTEINS")
            + graphs = rank0_first(torch_geometric.datasets.TUDataset, "data", "PROTEINS")
            - words = Words.from_pretrained("bert-base")
            + words = rank0_first(Words.from_pretrained, "bert-base")
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
                yield call_by(call.node, "rank0_first", "rank 0 downloads, and the others find it there")


def _downloads(module: Module, call: Call) -> bool:
    if (row := row_of(module, call)) is not None:
        return row.does is Does.DOWNLOAD
    if (call.name or "").startswith(GRAPHS) or _derives_from_graphs(module, call):
        return True
    if _is_own(module, call):
        return False
    given = call.keyword("download")
    may_download = given is not None and not (isinstance(given.value, ast.Constant) and not given.value.value)
    return may_download or call.method == "from_pretrained"


def _derives_from_graphs(module: Module, call: Call) -> bool:
    """Whether a class of the program says how such a data set is made."""
    home, made = module.program.definition(call.name) or (module, None)
    bases = made.bases if isinstance(made, ast.ClassDef) else []
    return any((home.name(base) or "").startswith(GRAPHS) for base in bases)


def _is_own(module: Module, call: Call) -> bool:
    """A function of the program, or a class that says itself what making an object does."""
    made = module.program.definition(call.name)
    if made is None:
        return module.program.is_local(call.name)
    body = made[1].body if isinstance(made[1], ast.ClassDef) else None
    return body is None or any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in body)
