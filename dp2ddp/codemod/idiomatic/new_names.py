"""What converted files call things: torch.distributed, the rank, the device of a rank; and the imports for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import replace
from functools import lru_cache

from dp2ddp.codemod.edits import Header, InsertBefore
from dp2ddp.codemod.helpers import as_isort, import_texts
from dp2ddp.codemod.lift import ImportLine, import_lines
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Change, Finding, Rule
from dp2ddp.codemod.start import last_import

# What a change may need, by the name that it has in new code: the imports that bring it, the first one preferred.
IMPORTS = {
    "os": (ImportLine("os"),),
    "sys": (ImportLine("sys"),),
    "torch": (ImportLine("torch"),),
    "tempfile": (ImportLine("tempfile"),),
    "logging": (ImportLine("logging"),),
    "dist": (
        ImportLine("torch.distributed", None, "dist"),
        ImportLine("torch", "distributed", "dist"),
        ImportLine("torch.distributed", None, "torch_dist"),
    ),
    "DDP": (
        ImportLine("torch.nn.parallel", "DistributedDataParallel", "DDP"),
        ImportLine("torch.nn.parallel", "DistributedDataParallel"),
    ),
    "DistributedSampler": (
        ImportLine("torch.utils.data.distributed", "DistributedSampler"),
        ImportLine("torch.utils.data", "DistributedSampler"),
    ),
}


@lru_cache(maxsize=1000)
def words_of(module: Module) -> NewNames:
    """The names of one file, found out once."""
    return NewNames(module)


NEEDS = "import "  # before what a change needs: no name of a helper, nor of anything in the file


class IdiomaticRule(Rule):
    """A rule of this style: its changes need imports (by the names in IMPORTS), and no helpers."""

    def find(self, module: Module) -> Iterator[Finding]:
        """Edits, hazards and notes for one file."""
        raise NotImplementedError

    def look(self, module: Module) -> Iterator[Finding]:
        for finding in self.find(module):
            if isinstance(finding, Change):
                yield replace(finding, helpers=tuple(f"{NEEDS}{word}" for word in finding.helpers))
            else:
                yield finding


AVERAGE = """

def average_gradients(optimizer):
    \"\"\"Take the mean of all ranks' gradients, also of what is not wrapped in DDP.\"\"\"
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                {dist}.all_reduce(parameter.grad)
                parameter.grad /= {dist}.get_world_size()"""


class NewNames:
    """The names of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.there = set(_imports_above(module))
        self.taken = {name for scope in module.scope_of.values() for name in scope.bindings}
        entry = module.program.entry
        self._is_started = module is entry and not module.program.project.entry_names

    def line(self, word: str) -> ImportLine:
        """The import of a thing: one that is there, or else one whose name is free."""
        lines = IMPORTS[word]
        there = (line for line in lines if line in self.there)
        free = (line for line in lines if line.bound not in self.taken)
        return next(there, next(free, lines[-1]))

    def __getitem__(self, word: str) -> str:
        return self.line(word).bound

    @property
    def rank(self) -> str:
        return self._of_start("rank") or f"{self['dist']}.get_rank()"

    @property
    def world_size(self) -> str:
        return self._of_start("world_size") or f"{self['dist']}.get_world_size()"

    @property
    def index(self) -> str:
        """The index of the rank's GPU."""
        return self._of_start("local_rank") or f"{self['torch']}.cuda.current_device()"

    @property
    def is_rank0(self) -> str:
        return f"{self.rank} == 0"

    def _of_start(self, name: str) -> str | None:
        """A variable that the lines of the start make, where this file can see it."""
        return name if self.binds(name) else None

    def binds(self, name: str) -> bool:
        """Whether the lines of the start may make a variable of this name."""
        return self._is_started and name not in self.taken


def _imports_above(module: Module) -> Iterator[ImportLine]:
    """The imports that have run where new imports stand."""
    last = last_import(module)
    for statement in module.tree.body:
        yield from import_lines(statement)
        if statement is last:
            return


def make_header(module: Module, needed: Set[str]) -> Header | None:
    """The imports that are missing, behind those that a file begins with."""
    words, needed = words_of(module), {each.removeprefix(NEEDS) for each in needed}
    missing = [line for word in needed & IMPORTS.keys() if (line := words.line(word)) not in words.there]
    lines = import_texts(sorted(missing, key=as_isort))
    if "average_gradients" in needed:
        lines += AVERAGE.format(dist=words["dist"]).split("\n")
    return Header(tuple(lines), last_import(module)) if lines else None


def names_cuda(program: Program) -> bool:
    """Whether a program names CUDA devices at all; else its ranks meet over gloo."""
    return any(_names_cuda(module) for module in program.modules)


def _names_cuda(module: Module) -> bool:
    if any(call.method == "cuda" for call in module.calls):
        return True
    if any(name.startswith("torch.cuda") for name in module.mentions):
        return True
    texts = (node.value for node in module.all(ast.Constant))
    return any(isinstance(text, str) and text.startswith("cuda") for text in texts)


def remark(module: Module, node: ast.AST, text: str) -> Change:
    """A comment above the line of a node, for the person who goes on with the script."""
    node = _first_of_line(module, module.statement(node))
    return Change(InsertBefore(node, f"# dp2ddp: {text}", text, apart=False))


def _first_of_line(module: Module, statement: ast.stmt) -> ast.stmt:
    """The whole of `if late: x = 1; y = 2`: comments stand on lines of their own."""
    for each in module.around(statement):
        if isinstance(each, ast.stmt) and each.lineno == statement.lineno:
            statement = each
    blocks = (getattr(module.parents[statement], name, None) for name in ("body", "orelse", "finalbody"))
    block = next((each for each in blocks if isinstance(each, list) and statement in each), [statement])
    return next(each for each in block if each.lineno == statement.lineno)
