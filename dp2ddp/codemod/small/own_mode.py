"""A distributed mode of the script's own, which a conversion leaves as it is: it is not run."""

from __future__ import annotations

import ast

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS


class OwnMode:
    """The functions of a file that make a process group and wrap nothing in DataParallel."""

    def __init__(self, module: Module) -> None:
        self.module = module
        groups = (call.node for call in module.calls if call.name == "torch.distributed.init_process_group")
        around = {each for node in groups for each in module.around(node) if isinstance(each, FUNCTIONS)}
        self.functions = {function for function in around if not self._wraps(function)}

    def _wraps(self, function: ast.AST) -> bool:
        names = (each for each in ast.walk(function) if isinstance(each, (ast.Name, ast.Attribute)))
        return any(does(self.module.name(each)) is Does.WRAP for each in names)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node stands in one of them."""
        return bool(self.functions) and any(each in self.functions for each in self.module.around(node))
