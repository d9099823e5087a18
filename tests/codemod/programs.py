"""Short ways to a conversion."""

from __future__ import annotations

import textwrap
from pathlib import Path

from nbformat.v4 import new_code_cell

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.files import SourceFile
from dp2ddp.source.notebook.notebooks import script_of
from dp2ddp.source.projects import LocalModule, Project

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def project(text: str, **modules: str) -> Project:
    local = (
        LocalModule(name, SourceFile(Path(f"{name}.py"), textwrap.dedent(one)))
        for name, one in modules.items()
    )
    return Project(_source(textwrap.dedent(text)), tuple(local))


def _source(text: str) -> SourceFile:
    """A text that begins with a mark is a notebook, with a cell behind each mark."""
    if not text.startswith("# %%\n"):
        return SourceFile(Path("train.py"), text)
    cells = [new_code_cell(cell) for cell in text.split("# %%\n")[1:]]
    return script_of(cells, None)


def program(text: str, **modules: str) -> Program:
    return Program(project(text, **modules))


def module(text: str, **modules: str) -> Module:
    return program(text, **modules).entry


def converted(text: str, modules: dict[str, str] | None = None, **options: object) -> Conversion:
    return convert(project(text, **(modules or {})), Options(**options))  # type: ignore[arg-type]


def said(conversion: Conversion) -> list[str]:
    """The hazards, then the notes: `hazard DDP901:3`."""
    hazards = [f"hazard {each.code}:{each.line}" for each in conversion.hazards]
    return hazards + [f"note {each.code}:{each.line}" for each in conversion.notes]
