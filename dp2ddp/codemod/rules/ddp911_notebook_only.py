"""DDP911: lines that only a notebook can run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Flags, Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.source.cells import Aside


class NotebookOnly(Rule):
    """Say what became of lines that only a notebook can run.

    ## What it does
    A note for each magic, shell line and import of IPython's that is set aside, or that Python does in the script. A
    hazard for those that the training may depend on and that nobody here can do (`%run`, a magic that is not known, an
    `await` outside of a function, `Out[3]`). The examples show cells, which begin with `# %%`.

    ## Why
    torchrun starts scripts. A line that is dropped without a word may be the one that sets CUDA_VISIBLE_DEVICES.

    ## Safety
    What is set aside shows, measures or installs something (docs/notebooks.md). All other shell lines run where they
    stand, by os.system, once.

    ## References
    IPython documentation, built-in magic commands; docs/semantics.md#notebooks.
    """

    code = "DDP911"
    name = "notebook-only"
    nodes = ("Pass",)
    examples = (
        Notes(
            before="""
                # %%
                %matplotlib inline
                import torch
                net = torch.nn.DataParallel(net)
            """,
            message="`%matplotlib inline` is set aside",
        ),
        Flags(
            before="""
                # %%
                import torch
                %run helpers.ipynb
                net = torch.nn.DataParallel(net)
            """,
            message="runs another file",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nprint(f'{3:%}')"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        cells = facts.script.source.cells
        for aside in cells.asides if cells else ():
            node = _at(aside)
            yield Hazard(node, aside.because, aside.advice) if aside.advice else Note(node, aside.because)


def _at(aside: Aside) -> ast.AST:
    """A node at the beginning of a line of which only a comment is left."""
    return ast.Pass(lineno=aside.line, col_offset=0, end_lineno=aside.line, end_col_offset=0)
