"""Short ways to a script and its facts, for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import LocalModule, Project


def script_of(text: str) -> Script:
    return Script(SourceFile(None, textwrap.dedent(text)))


def facts_of(text: str, **modules: str) -> Facts:
    return gather_facts(project_of(text, **modules))


def project_of(text: str, **modules: str) -> Project:
    local = (
        LocalModule(name, SourceFile(Path(f"{name}.py"), textwrap.dedent(one)))
        for name, one in modules.items()
    )
    return Project(SourceFile(None, textwrap.dedent(text)), tuple(local))


def converted(text: str, **options: object) -> Conversion:
    """With helpers imported, unless asked otherwise."""
    return convert(project_of(text), Options(**{"helpers": HelperPlace.PACKAGE, **options}))  # type: ignore[arg-type]
