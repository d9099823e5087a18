"""What of a script acts on the world outside."""

from __future__ import annotations

from tests.codemod.scripts import facts_of

WRAP = "import torch\nnet = torch.nn.DataParallel(Net())\n"


def kinds(text: str) -> list[str]:
    return [effect.kind for effect in facts_of(WRAP + text).effects]


def test_a_method_of_the_users_model_runs_on_every_rank() -> None:
    assert kinds("figure.save('a.png')\n") == ["saver"]
    assert kinds("net.module.save('latest.pth')\n") == []
    assert kinds("class Plot:\n    def save(self, name):\n        pass\nPlot().save('a.png')\n") == []
