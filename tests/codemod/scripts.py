"""Short ways to a script, its model and its conversion, for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import LocalModule, Project


def module_of(text: str) -> Module:
    """One file, as it is."""
    project = Project(SourceFile(None, text))
    return Program(project).entry


def project_of(text: str, **modules: str) -> Project:
    local = (
        LocalModule(name, SourceFile(Path(f"{name}.py"), textwrap.dedent(one)))
        for name, one in modules.items()
    )
    return Project(SourceFile(None, textwrap.dedent(text)), tuple(local))


def converted(text: str, **options: object) -> Conversion:
    """With helpers imported, unless asked otherwise."""
    return convert(project_of(text), Options(**{"helpers": HelperPlace.PACKAGE, **options}))  # type: ignore[arg-type]
