"""Three conversions whole, as their owner reads them: a CIFAR script, a GAN, a trainer of classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.cases import HERE as CORPUS

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.small_idiomatic.convert import convert_idiomatic
from dp2ddp.source.projects import read_project

GOLDENS = Path(__file__).parent / "goldens"
SCRIPTS = {
    "cifar": "data/cifar_style.py",
    "gan": "models/gan_two_wrapped.py",
    "trainer": "projects/template_trainer/train.py",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_conversion_is_as_it_was_read(name: str, update: bool) -> None:
    conversion = convert_idiomatic(read_project(CORPUS / SCRIPTS[name]), Options(style="idiomatic"))
    golden, lines = GOLDENS / f"{name}.diff", conversion.diff().splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("---", "+++"))) + "\n"
    if update:
        golden.write_text(text)

    assert text == golden.read_text()
    assert "dp2ddp" not in "".join(
        line
        for line in lines
        if line.startswith("+") and "# dp2ddp:" not in line and not line.startswith("+++")
    )
