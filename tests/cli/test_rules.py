"""`dp2ddp rules`: the list, one page, the folder of pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main


def rules(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)])


def test_the_list_has_a_line_a_rule() -> None:
    lines = rules().stdout.splitlines()

    assert any(line.startswith("DDP201  data-parallel ") for line in lines)
    assert all(line.startswith("DDP") for line in lines)


def test_a_page_explains_and_shows() -> None:
    result = rules("ddp201")

    assert result.exit_code == 0
    assert result.stdout.startswith("# DDP201 data-parallel\n")  # without the line for who edits docs/rules
    assert "## Why" in result.stdout
    assert "+net = WholeBatchDDP(net)" in result.stdout


def test_a_family_is_listed() -> None:
    lines = rules("ddp60").stdout.splitlines()

    assert [line[:6] for line in lines] == [f"DDP60{number}" for number in range(1, 10)]


def test_an_unknown_code_is_a_usage_error() -> None:
    result = rules("DDP777")

    assert result.exit_code == 2
    assert "DDP777: no such rule" in result.stderr


def test_pages_are_written_into_a_folder(tmp_path: Path) -> None:
    result = rules("--write", tmp_path / "rules")

    assert result.exit_code == 0
    assert (tmp_path / "rules" / "DDP101.md").read_text().startswith("<!-- Generated")


def test_the_list_among_the_pages_is_fresh(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    written = rules("--write", tmp_path).stdout.splitlines()
    docs = request.config.rootpath / "docs" / "rules"

    assert sorted(Path(path).name for path in written) == sorted(page.name for page in docs.iterdir())
    assert (tmp_path / "README.md").read_text() == (docs / "README.md").read_text(), (
        "run `dp2ddp rules --write docs/rules`"
    )
