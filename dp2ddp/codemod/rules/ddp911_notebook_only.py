"""Say what became of lines that only a notebook can run.

A note for each magic, shell line and import of IPython's that is set aside, or that Python does in the script. A
hazard for those that the training may depend on and that nobody here can do (`%run`, a magic that is not known).

torchrun starts scripts. A line that is dropped without a word may be the one that sets CUDA_VISIBLE_DEVICES.

What is set aside shows, measures or installs something. All other shell lines run where they stand, once.

IPython documentation, built-in magic commands; docs/projects.md#notebooks.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags, notes


class NotebookOnly(Rule):
    examples = (
        notes("""
            # `%matplotlib inline` is set aside
            # %%
            %matplotlib inline
            import torch
            net = torch.nn.DataParallel(net)
        """),
        flags("""
            # runs another file
            # %%
            import torch
            %run helpers.ipynb
            net = torch.nn.DataParallel(net)
        """),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nprint(f'{3:%}')"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        cells = module.source.cells
        for aside in cells.asides if cells else ():
            # a node at the beginning of a line of which only a comment is left
            node = ast.Pass(lineno=aside.line, col_offset=0, end_lineno=aside.line, end_col_offset=0)
            because = Reason("notebook-only", aside.because, aside.advice)
            yield Hazard(node, because) if aside.advice else Note(node, because)
