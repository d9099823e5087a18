"""`[tool.dp2ddp.COMMAND]` in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main

SCRIPT = """\
import torch
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
model(torch.ones(4, 2)).sum().backward()
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("train.py").write_text(SCRIPT)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_table_gives_a_command_other_defaults() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "idiomatic"\n')

    assert "(DDP704)" in run("convert", "train.py", "-o", "-").stderr  # of the idiomatic style


def test_the_command_line_counts_more() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "idiomatic"\n')

    assert "WholeBatch" in run("convert", "train.py", "-o", "-", "--style", "exact").stdout


def test_the_check_takes_its_format_from_there() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.check]\nformat = "json"\n')

    assert run("check").stdout.startswith("{")


@pytest.mark.parametrize("table", ['stlye = "idiomatic"', 'nothing = "idiomatic"'])
def test_an_option_that_is_none_is_an_error(table: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.dp2ddp.convert]\n{table}\n")

    result = run("convert", "train.py", "--diff")

    assert result.exit_code == 3
    assert f"dp2ddp convert has no option {table.partition(' ')[0]!r}" in result.stderr
    assert ("did you mean style?" in result.stderr) == table.startswith("stlye")


def test_a_wrong_value_is_a_usage_error() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "pretty"\n')

    assert run("convert", "train.py", "--diff").exit_code == 2
