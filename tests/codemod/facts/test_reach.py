"""Which parts of local modules count: those that the script can reach."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.libraries import tracker_imports
from tests.codemod.scripts import facts_of

MODELS = (
    "def small():\n    return 1\ndef large():\n    return small()\nif __name__ == '__main__':\n    other()\n"
)


def reached(script: str, models: str = MODELS) -> list[str]:
    facts = facts_of(script, models=models)
    (module,) = facts.others
    nodes = [node for node in module.script.tree.body if hasattr(node, "name")]
    return [node.name for node in nodes if facts.reach.holds(module.script, node)]


def test_what_is_mentioned_and_what_that_mentions() -> None:
    assert reached("import models\nmodels.large()\n") == ["small", "large"]
    assert reached("from models import small\nsmall()\n") == ["small"]
    assert reached("import models\n") == []
    assert reached("from models import small, large\nsmall()\n") == ["small"]
    assert reached("from models import small as net\nnet()\n") == ["small"]


@pytest.mark.parametrize(
    "asked", ["getattr(models, args.arch)()", "models.__dict__[args.arch]()", "vars(models)"]
)
def test_a_module_whose_names_are_looked_up_counts_as_a_whole(asked: str) -> None:
    assert reached(f"import models\n{asked}\n") == ["small", "large"]


@pytest.mark.parametrize(
    "used",
    ["TABLE = {'m': models}", "for one in (models, other):\n    getattr(one, name)()", "build(models)"],
)
def test_a_module_that_is_handed_on_counts_as_a_whole(used: str) -> None:
    assert reached(f"import models\n{used}\n") == ["small", "large"]


def test_getattr_of_anything_else_reaches_nothing() -> None:
    assert reached("import models\ngetattr(args, 'lr')\n") == []


def test_text_that_is_run_may_name_anything() -> None:
    assert reached("import models\neval(args.arch)\n") == ["small", "large"]


@pytest.mark.parametrize(
    "table",
    [
        "from registry import NETS\n@NETS.register('n')\nclass Net:\n    pass\n",
        "TABLE = {}\ndef keep(f):\n    TABLE[f.__name__] = f\n    return f\n@keep\nclass Net:\n    pass\n",
        "class Net:\n    pass\ndef build(name):\n    return getattr(sys.modules[__name__], name)\n",
        "class Base:\n    def __init_subclass__(cls):\n        pass\nclass Net(Base):\n    pass\n",
        "class Base:\n    pass\nclass Net(Base):\n    pass\nkinds = Base.__subclasses__()\n",
    ],
)
def test_what_is_found_by_a_table_counts(table: str) -> None:
    assert "Net" in reached("import models\nmodels.build(args.arch)\n", f"import sys\n{table}")


def test_a_decorator_of_torch_keeps_no_table() -> None:
    assert reached("import models\n", "import torch\n@torch.no_grad()\ndef test(net):\n    pass\n") == []


def test_the_main_block_of_a_module_does_not_run() -> None:
    facts = facts_of("import models\neval('1')\n", models=MODELS)
    (module,) = facts.others
    assert not facts.reach.holds(module.script, module.script.tree.body[-1])


METER = """
import torch
class Meter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
    def forward(self, x):
        FILLS
        return x
def report(meter):
    print(meter.seen)
"""


@pytest.mark.parametrize("fills", ["self.seen.append(len(x))", "self.weight.data.mul_(0.9)"])
def test_a_class_that_the_script_does_not_reach_makes_no_rank_wait_its_turn(fills: str) -> None:
    meter = METER.replace("FILLS", fills)
    wrap = "import torch\nimport meters\nnet = torch.nn.DataParallel(NET)\n"
    assert facts_of(wrap.replace("NET", "meters.Meter()"), meters=meter).needs_rank_order
    assert not facts_of(wrap.replace("NET", "torch.nn.Linear(2, 2)"), meters=meter).needs_rank_order


def test_a_package_of_the_project_that_is_called_like_a_tracker_is_none() -> None:
    script = "import torch\nfrom trains import Trainer\nTrainer(torch.nn.DataParallel(net))\n"
    own, foreign = (facts_of(script, **{name: "class Trainer:\n    pass\n"}) for name in ("trains", "other"))
    assert not list(tracker_imports(own.script, own.modules, own.entry.last_import))
    assert list(tracker_imports(foreign.script, foreign.modules, foreign.entry.last_import))
