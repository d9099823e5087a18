"""What converted files call things: torch.distributed, the rank, the device of a rank; and the imports for it."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, Header, InsertBefore
from dp2ddp.codemod.helpers import as_isort, import_texts
from dp2ddp.codemod.lift import ImportLine, import_lines
from dp2ddp.codemod.looks.start import last_import
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.plans.plan import FilePlan

# What new code may need, by its usual name: the imports that bring it, the first one preferred.
IMPORTS = {
    **{name: (ImportLine(name),) for name in ("os", "sys", "torch", "tempfile", "logging")},
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
        self.there = set(_imports_above(module))
        self.taken = {name for scope in module.scope_of.values() for name in scope.bindings}
        program = module.program
        self._is_started = module is program.entry and not program.project.entry_names

    def line(self, word: str) -> ImportLine:
        """The import of a thing: one that is there, or else one whose name is free."""
        lines = IMPORTS[word]
        there = (line for line in lines if line in self.there)
        free = (line for line in lines if line.bound not in self.taken)
        return next(there, next(free, lines[-1]))

    def __getitem__(self, word: str) -> str:
        return self.line(word).bound

    def binds(self, name: str) -> bool:
        """Whether the lines of the start make a variable of this name, which this file sees."""
        return self._is_started and name not in self.taken

    @property
    def rank(self) -> str:
        return "rank" if self.binds("rank") else f"{self['dist']}.get_rank()"

    @property
    def is_rank0(self) -> str:
        return f"{self.rank} == 0"

    @property
    def world_size(self) -> str:
        return "world_size" if self.binds("world_size") else f"{self['dist']}.get_world_size()"

    @property
    def index(self) -> str:
        """The index of the rank's GPU."""
        return "local_rank" if self.binds("local_rank") else f"{self['torch']}.cuda.current_device()"


@lru_cache(maxsize=1000)
def words_of(module: Module) -> NewNames:
    """The names of one file, found out once."""
    return NewNames(module)


def _imports_above(module: Module) -> Iterator[ImportLine]:
    """The imports that have run where new imports stand."""
    last = last_import(module)
    for statement in module.tree.body:
        yield from import_lines(statement)
        if statement is last:
            return


def make_header(each: FilePlan) -> Header | None:
    """The imports that new code asks for by its names, and the function that it calls; behind the imports there."""
    words = words_of(each.module)
    codes = (getattr(edit, "code", "") or getattr(edit, "test", "") for edit in each.edits)
    text = re.sub(r"#.*", "", "\n".join(codes))
    function = AVERAGE.format(dist=words["dist"]) if "average_gradients(" in text else ""
    missing = (line for line in map(words.line, IMPORTS) if line not in words.there)
    needed = [
        line for line in missing if re.search(rf"(?<![\w.\"']){line.bound}(?![\w\"'])", text + function)
    ]
    lines = [*import_texts(sorted(needed, key=as_isort)), *function.splitlines()]
    return Header(tuple(lines), last_import(each.module)) if lines else None


@lru_cache(maxsize=8)
def names_cuda(program: Program) -> bool:
    """Whether a program names CUDA devices at all; else its ranks meet over gloo."""
    return any(
        any(call.method == "cuda" for call in module.calls)
        or any(name.startswith("torch.cuda") for name in module.mentions)
        or any(str(node.value).startswith("cuda") for node in module.all(ast.Constant))
        for module in program.modules
    )


def remark(module: Module, node: ast.AST, text: str) -> Finding:
    """A comment above the line of a node, for the person who goes on with the script."""
    statement = module.statement(node)
    for each in module.around(statement):  # the whole of `if late: x = 1; y = 2`
        if isinstance(each, ast.stmt) and each.lineno == statement.lineno:
            statement = each
    first = next(each for each in module.block_of(statement) if each.lineno == statement.lineno)
    return InsertBefore(first, f"# dp2ddp: {text}", text, apart=False)
