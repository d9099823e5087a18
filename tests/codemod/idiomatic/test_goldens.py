"""Conversions whole, as their owner reads them: a CIFAR script, a GAN, a trainer of classes, functions, bars."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.cases import HERE as CORPUS

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.idiomatic.convert import convert_idiomatic
from dp2ddp.report.conversion_report import conversion_text
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project, read_project

HERE = Path(__file__).parent
GOLDENS = HERE / "goldens"
SCRIPTS = {
    "cifar": "data/cifar_style.py",
    "gan": "models/gan_two_wrapped.py",
    "trainer": "projects/template_trainer/train.py",
    "functions": HERE / "conversions" / "functions.py",
    "bars": HERE / "conversions" / "bars.py",
}


def converted(name: str) -> Conversion:
    return convert_idiomatic(read_project(CORPUS / SCRIPTS[name]), Options(style="idiomatic"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_conversion_is_as_it_was_read(name: str, update: bool) -> None:
    conversion = converted(name)
    golden, report = GOLDENS / f"{name}.diff", GOLDENS / f"{name}.txt"
    text = (
        "\n".join(line for line in conversion.diff().splitlines() if not line.startswith(("---", "+++")))
        + "\n"
    )
    lines = conversion_text(conversion, None).splitlines()[1:]
    said = "".join(f"{line}\n" for line in lines if " it with: " not in line)  # without paths
    if update:
        golden.write_text(text)
        report.write_text(said)

    assert text == golden.read_text()
    assert said == report.read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_needs_nothing_but_torch(name: str) -> None:
    conversion = converted(name)
    added = [
        line for line in conversion.diff().splitlines() if line.startswith("+") and "# dp2ddp:" not in line
    ]

    assert conversion.helper_file == {}
    assert not any("dp2ddp" in line or "ddp_helpers" in line for line in added if not line.startswith("+++"))


@pytest.mark.parametrize("name", ["cifar", "gan", "functions", "bars"])
def test_a_second_conversion_finds_nothing_to_do(name: str) -> None:
    before = Project(SourceFile(None, converted(name).after))

    second = convert_idiomatic(before, Options(style="idiomatic"))

    assert not second.changed
    assert not second.hazards
