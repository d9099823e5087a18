"""What converted files call things: torch.distributed, the rank, the device of a rank; and the imports for it."""

import ast
import re
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

from dp2ddp.codemod.edits import Finding, Header, InsertBefore, new_code
from dp2ddp.codemod.helpers import import_texts
from dp2ddp.codemod.lift import ImportLine, import_lines
from dp2ddp.codemod.looks.start import join_of, last_import
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.planned import Plan

# What new code may need, by its usual name, and the imports that bring it.
IMPORTS = {
    **{name: ImportLine(name) for name in ("logging", "os", "sys", "tempfile", "torch")},
    "dist": ImportLine("torch.distributed", None, "dist"),
    "DDP": ImportLine("torch.nn.parallel", "DistributedDataParallel", "DDP"),
    "DistributedSampler": ImportLine("torch.utils.data.distributed", "DistributedSampler"),
}
# What is said where the file does not see a variable of the start.
CALLS = {
    "rank": "{dist}.get_rank()",
    "world_size": "{dist}.get_world_size()",
    "local_rank": "{torch}.cuda.current_device()",
}
AVERAGE = """

def average_gradients(optimizer):
    \"\"\"Take the mean of all ranks' gradients, also of what is not wrapped.\"\"\"
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                {dist}.all_reduce(parameter.grad)
                parameter.grad /= {dist}.get_world_size()"""


class NewNames:
    """The names of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        last = last_import(module)
        above = takewhile(lambda each: last and each.lineno <= last.lineno, module.tree.body)
        lines = (line for statement in above for line in import_lines(statement))
        self.there = {line.dotted: line.bound for line in lines}
        program = module.program
        join = join_of(module) if module is program.entry and not program.project.entry_names else None
        self._is_started = join is not None and module.function_around(join.before) is None

    def __getitem__(self, word: str) -> str:
        """What a thing is called: as an import that is there calls it, or else by a name that is free."""
        if word in CALLS:
            return word if self.binds(word) else CALLS[word].format_map(self)
        dotted, bindings = IMPORTS[word].dotted, self.module.bindings_of(word)
        is_free = all(each.dotted == dotted or each.dotted.endswith(f".{word}") for each in bindings)
        return self.there.get(dotted, word if is_free else f"{word}_")

    def binds(self, name: str) -> bool:
        """Whether the lines of the start make a variable of this name, which this file sees."""
        return self._is_started and name not in self.module.all_bindings

    def code(self, template: str) -> str:
        """`{dist}.barrier()` with the names of this file."""
        return template.format_map(self)


@lru_cache(maxsize=1000)
def words_of(module: Module) -> NewNames:
    """The names of one file, found out once."""
    return NewNames(module)


def make_header(each: Plan) -> Header | None:
    """The imports that new code asks for by its names, and the function that it calls; behind the imports there."""
    words = words_of(each.module)
    text = " ".join(re.sub("#.*", "", new_code([edit])) for edit in each.text_edits)
    function = words.code(AVERAGE) if "average_gradients(" in text else ""
    lines = []
    for word, line in IMPORTS.items():
        is_said = re.search(rf"(?<![\w.\"']){words[word]}(?![\w\"'])", text + function)
        if is_said and line.dotted not in words.there:
            lines.append(line if line.bound == words[word] else replace(line, alias=words[word]))
    code = (*import_texts(lines), *function.splitlines())
    return Header(code, last_import(each.module)) if code else None


def remark(module: Module, node: ast.AST, text: str) -> Finding:
    """A comment above the line of a node, for the person who goes on with the script."""
    statement = module.statement(node)
    for each in module.around(statement):  # the whole of `if late: x = 1; y = 2`
        if isinstance(each, ast.stmt) and each.lineno == statement.lineno:
            statement = each
    first = next(each for each in module.block_of(statement) if each.lineno == statement.lineno)
    return InsertBefore(first, f"# dp2ddp: {text}", text, apart=False)
