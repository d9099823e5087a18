"""`--report` of convert, verify and bench."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked

SCRIPT = """\
import torch
net = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.ones(4, 3).cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_convert_writes_what_is_asked_for_and_tells_where(script: Path) -> None:
    page, text = script.with_name("a.html"), script.with_name("a.md")

    result = convert(script, "--report", page, "--report", text)

    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [f"report: {page}", f"report: {text}"]
    assert "report:" not in result.stdout
    assert "train_ddp.py" in page.read_text()
    assert "train_ddp.py" in text.read_text()


def test_with_check_and_diff_only_the_report_is_written(script: Path) -> None:
    for option in ("--check", "--diff"):
        result = convert(script, option, "--report", script.with_name("a.html"))

        assert result.exit_code == (1 if option == "--check" else 0)
        assert "Nothing was written yet" in script.with_name("a.html").read_text()
        assert sorted(path.name for path in script.parent.iterdir()) == ["a.html", "train.py"]


def test_where_no_report_can_be_written_nothing_is_done(script: Path) -> None:
    result = convert(script, "--report", script.with_name("a.pdf"))

    assert result.exit_code == 3
    assert "ends in .html, .htm, .md" in result.stderr
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


FOREIGN = {
    "README.md": "# My project\n\nIts page has dp2ddp's name on it.\n",
    "page.html": "<!DOCTYPE html>\n<html><head><title>mine</title></head></html>\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_report_is_not_overwritten(script: Path, name: str) -> None:
    foreign = script.with_name(name)
    foreign.write_text(FOREIGN[name])

    result = convert(script, "--report", foreign)

    assert result.exit_code == 3
    assert result.stderr == (
        f"dp2ddp: {foreign}: exists, and is no report of dp2ddp; "
        "name another file for the report, or remove this one\n"
    )
    assert foreign.read_text() == FOREIGN[name]
    assert sorted(path.name for path in script.parent.iterdir()) == sorted([name, "train.py"])


def test_a_link_to_such_a_file_is_not_followed(script: Path) -> None:
    script.with_name("README.md").write_text(FOREIGN["README.md"])
    script.with_name("out.md").symlink_to("README.md")

    assert convert(script, "--report", script.with_name("out.md")).exit_code == 3
    assert script.with_name("README.md").read_text() == FOREIGN["README.md"]


def test_a_file_that_came_while_scripts_ran_is_not_overwritten(tmp_path: Path) -> None:
    from dp2ddp.errors import SourceError
    from dp2ddp.report.comparison import Report
    from dp2ddp.report.report_files import write_report

    (tmp_path / "out.md").write_text("mine")

    with pytest.raises(SourceError, match="is no report of dp2ddp"):
        write_report(Report("train.py", (), "torchrun", 1.0, failure="hangs"), tmp_path / "out.md")
    assert (tmp_path / "out.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["a.html", "a.md"])
def test_an_older_report_is_overwritten_and_so_is_an_empty_file(script: Path, name: str) -> None:
    report = script.with_name(name)
    report.touch()
    assert convert(script, "--check", "--report", report).exit_code == 1
    first = report.read_text()

    script.write_text(f"print('changed')\n{SCRIPT}")
    assert convert(script, "--check", "--report", report).exit_code == 1

    assert "changed" in report.read_text() != first


@pytest.mark.torchrun
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--steps", 1),
        pytest.param(
            ("bench", "--steps", 2, "--warm-up", 1, "--compare", 0, "--rounds", 1), marks=pytest.mark.slow
        ),
    ],
)
def test_verify_and_bench_write_theirs(script: Path, server: Server, command: tuple[object, ...]) -> None:
    arguments = ("train.py", "-n", 2, *command[1:], "--report", "a.html")
    result = forked(server, script.parent, command[0], *arguments)

    assert result.exit_code == 0, result.stderr
    assert f"dp2ddp {command[0]}</title>" in script.with_name("a.html").read_text()
