"""What a name of one file means in another."""

from __future__ import annotations

from dp2ddp.codemod.facts.modules import Modules
from tests.codemod.scripts import project_of


def test_modules_that_star_import_each_other_or_themselves() -> None:
    modules = Modules(
        project_of(
            "from a import *\n", a="from b import *\nfrom a import *\n", b="from a import *\nimport os\n"
        )
    )
    assert modules.binds("a", "os")
    assert not modules.binds("a", "sys")
    assert not modules.binds("b", "sys")
