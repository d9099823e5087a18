"""`dp2ddp rules`: the list, one page."""

from __future__ import annotations

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
    assert result.stdout.startswith("# DDP201 data-parallel\n")  # without the line for who edits a page
    assert "## Why" in result.stdout
    assert "+net = WholeBatchDDP(net)" in result.stdout


def test_a_family_is_listed() -> None:
    lines = rules("ddp60").stdout.splitlines()

    assert [line[:6] for line in lines] == [f"DDP60{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9)]
