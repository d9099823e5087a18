"""Whole scripts, all rules together: `change.diff` is what an expert would have done (helpers are imported here)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.report.conversion_report import conversion_text
from dp2ddp.source.files import decode_source
from dp2ddp.source.projects import Project

FOLDER = Path(__file__).parent / "conversions"
NAMES = sorted(path.name for path in FOLDER.iterdir() if (path / "before.py").exists())


def converted(data: bytes, helpers: HelperPlace = HelperPlace.PACKAGE) -> Conversion:
    return convert(Project(decode_source(data, Path("train.py"))), Options(helpers=helpers))


@pytest.mark.parametrize("name", NAMES)
class TestConversion:
    @pytest.fixture
    def before(self, name: str) -> bytes:
        return (FOLDER / name / "before.py").read_bytes()

    def test_the_result_is_as_it_was_read_and_approved(self, name: str, before: bytes, update: bool) -> None:
        conversion = converted(before)
        change, report = conversion.diff_bytes(), conversion_text(conversion, None)
        if update:
            (FOLDER / name / "change.diff").write_bytes(change)
            (FOLDER / name / "report.txt").write_text(report)

        assert change == (FOLDER / name / "change.diff").read_bytes()
        assert report == (FOLDER / name / "report.txt").read_text()

    @pytest.mark.parametrize("helpers", HelperPlace)
    def test_a_second_conversion_finds_nothing_to_do(self, before: bytes, helpers: HelperPlace) -> None:
        first = converted(before, helpers)

        second = converted(first.before.encoded(first.after), helpers)

        assert not second.changed
        assert not second.hazards

    def test_the_result_is_python(self, before: bytes) -> None:
        ast.parse(converted(before, HelperPlace.IN_SCRIPT).after)
