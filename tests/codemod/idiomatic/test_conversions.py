"""Whole scripts in the idiomatic style: `after.py` was read as a person would who knows the tutorials by heart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.report.conversion import conversion_text
from dp2ddp.source.files import decode_source
from dp2ddp.source.projects import Project

FOLDER = Path(__file__).parent / "conversions"
NAMES = sorted(path.name for path in FOLDER.iterdir())
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BEFORE = {"cifar": EXAMPLES / "cifar_bn" / "train.py"}  # others lie beside their result


def converted(data: bytes) -> Conversion:
    return convert(Project(decode_source(data, Path("train.py"))), Options(style="idiomatic"))


@pytest.mark.parametrize("name", NAMES)
class TestConversion:
    @pytest.fixture
    def conversion(self, name: str) -> Conversion:
        return converted(BEFORE.get(name, FOLDER / name / "before.py").read_bytes())

    def test_the_result_is_as_it_was_read_and_approved(
        self, name: str, conversion: Conversion, update: bool
    ) -> None:
        after, report = conversion.after, conversion_text(conversion, None)
        if update:
            (FOLDER / name / "after.py").write_text(after)
            (FOLDER / name / "report.txt").write_text(report)

        assert after == (FOLDER / name / "after.py").read_text()
        assert report == (FOLDER / name / "report.txt").read_text()

    def test_it_needs_nothing_but_torch(self, conversion: Conversion) -> None:
        tree = ast.parse(conversion.after)
        added = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}

        assert "dp2ddp" not in conversion.after
        assert "ddp_helpers" not in conversion.after
        assert conversion.helper_file == {}
        assert "torch.distributed" in added

    def test_a_second_conversion_finds_nothing_to_do(self, conversion: Conversion) -> None:
        second = converted(conversion.after.encode())

        assert not second.changed
        assert not second.hazards
