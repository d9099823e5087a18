"""Names for what a conversion adds, so that nothing of the script's own is hidden by them."""

from __future__ import annotations

import builtins
from functools import cached_property

from dp2ddp.codemod.facts.script import Script
from dp2ddp.source.helper_module import IMPORTED


class Names:
    """What added imports and helpers are called in one script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    @cached_property
    def used(self) -> set[str]:
        """All names the script uses anywhere."""
        return self.script.bound_names()

    @cached_property
    def of_module(self) -> set[str]:
        """The names that live at module level, or come from somewhere unseen (`from x import *`)."""
        top, scopes = self.script.scopes.top, self.script.scopes
        bound = set(top.imports) | set(top.values) | set(top.definitions)
        all_scopes = set(scopes.scope_of.values())
        unseen = {
            name
            for name in self.used
            if not hasattr(builtins, name) and not any(scope.binds(name) for scope in all_scopes)
        }
        return bound | unseen

    def helper(self, name: str) -> str:
        """What a lifted helper is called: its own name, unless the script uses that one for something else."""
        return f"{name}_" if name in self.used and not self.is_here(name) else name

    def is_here(self, name: str) -> bool:
        """Whether an earlier conversion has brought this helper."""
        top = self.script.scopes.top
        definition = top.definitions.get(name)
        imported = top.imports.get(name, "").startswith(IMPORTED)
        return (
            imported
            or definition is not None
            and getattr(definition, "lineno", 0) in self.script.helper_lines
        )
