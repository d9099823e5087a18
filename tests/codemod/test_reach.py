"""Which parts of a program can run when its script is started."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.reading import read_program
from dp2ddp.source.helper_module import OPENING
from tests.codemod.programs import WRAP, converted, program, project, said


def runs(entry: str, models: str, name: str) -> bool:
    """Whether what a function of models.py does can run."""
    whole = program(entry, models=models)
    home = whole.by_name["models"]
    function = next(each for each in home.all(ast.FunctionDef) if each.name == name)
    return whole.reach.runs(home, function.body[0])


MODELS = """
class Net:
    def forward(self, x):
        return helper(x)
    def debug(self):
        pass
def helper(x):
    return x
def unused():
    pass
if __name__ == "__main__":
    unused()
"""


@pytest.mark.parametrize(
    ("name", "does"), [("forward", True), ("helper", True), ("debug", False), ("unused", False)]
)
def test_what_nobody_names_does_not_run(name: str, does: bool) -> None:
    assert runs("from models import Net, unused\nnet = Net()\nnet.forward(1)\n", MODELS, name) is does


@pytest.mark.parametrize(
    "entry",
    [
        "import models\nmake = getattr(models, name)\n",
        "import models\nmake = models.__dict__[name]\n",
        "import models\nfor home in (models, others):\n    home\n",
        "import importlib\nimportlib.import_module(name)\n",
        "import models\nmodels.unused()\n",
        "from models import unused as used\nused()\n",
    ],
)
def test_what_is_looked_up_by_a_name_that_the_text_does_not_tell_may_run(entry: str) -> None:
    assert runs(entry, MODELS, "unused")


@pytest.mark.parametrize("decorator", ["register", "library.register"])
def test_a_decorator_may_put_what_it_decorates_into_a_table(decorator: str) -> None:
    text = f"import library\ndef register(f):\n    return f\n@{decorator}\ndef build():\n    pass\n"
    assert runs("import models\n", text, "build")


def test_methods_that_a_library_may_call_run() -> None:
    text = "import library\nclass Hook(library.Hook):\n    def after_step(self):\n        pass\n"
    assert runs("from models import Hook\nHook()\n", text, "after_step")
    assert not runs("from models import Hook\nHook()\n", text.replace("library.Hook", "object"), "after_step")


def test_methods_run_where_attributes_are_asked_for_by_computed_names() -> None:
    text = "class Hook:\n    def after_step(self):\n        pass\n"
    assert runs("from models import Hook\ngetattr(Hook(), when + 'step')()\n", text, "after_step")
    assert runs("from models import Hook\ncall(Hook(), 'after_step')\n", text, "after_step")


HAZARD = "def look():\n    breakpoint()\n"


def test_a_hazard_that_nothing_reaches_is_a_note() -> None:
    assert said(converted(f"{WRAP}{HAZARD}look()\n")) == ["hazard DDP906:4"]
    found = converted(f"{WRAP}{HAZARD}")
    assert said(found) == ["note DDP906:4"]
    assert found.changed


def test_nothing_is_converted_in_files_that_the_script_does_not_reach() -> None:
    models = (
        "import torch\ndef used(net):\n    torch.save(net, 'a')\ndef unused(net):\n    torch.save(net, 'b')\n"
    )
    found = converted(f"from models import used\n{WRAP}used(net)\n", {"models": models})
    assert "save_on_rank0(net, 'a')" in found.modules[0].after
    assert "torch.save(net, 'b')" in found.modules[0].after


@pytest.mark.parametrize("test", ["False", "0", "None"])
def test_a_branch_that_is_switched_off_for_good_wraps_nothing(test: str) -> None:
    text = f"import torch\nif {test}:\n    net = torch.nn.DataParallel(net)\nnet(1)\n"
    assert not converted(text).changed
    assert converted(text.replace(test, "torch.cuda.is_available()")).changed


def test_what_helpers_of_an_earlier_conversion_look_up_reaches_nothing_of_the_script() -> None:
    """They look into `sys.modules`, and would make everything run."""
    helpers = f"{OPENING} (edition 0)."  # the first line of the file
    text = f'{helpers}"""\nimport sys\ndef numpy():\n    return sys.modules.get("numpy")\n'
    whole = read_program(project("import ddp_helpers\nimport models\n", models=MODELS, ddp_helpers=text))
    unused = next(each for each in whole.by_name["models"].all(ast.FunctionDef) if each.name == "unused")
    assert not whole.reach.runs(whole.by_name["models"], unused.body[0])
