"""`--report` and `--open` of convert, verify and bench."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.cli._reports import has_screen, open_page
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
FAR_AWAY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A browser that writes down the addresses it is given."""
    seen = tmp_path / "seen.txt"
    program = tmp_path / "browser.py"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'a').write(sys.argv[1] + '\\n')\n"
    )
    program.chmod(0o755)
    choose(program, monkeypatch)
    return seen


def choose(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the user's browser; Python's module looks once in a process."""
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", str(program))


def convert(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)], env=variables)


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


def test_the_page_is_opened(script: Path, browser: Path) -> None:
    page = script.with_name("a b.html")

    result = convert(script, "--report", script.with_name("a.md"), "--report", page, "--open")

    assert result.exit_code == 0, result.output
    assert browser.read_text() == page.as_uri() + "\n"


def test_without_a_name_the_page_lies_in_a_temporary_folder(
    script: Path, browser: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    result = convert(script, "--check", "--open")

    (page,) = (tmp_path / "temporary").glob("dp2ddp-*/convert.html")
    assert result.exit_code == 1  # as without it
    assert result.stderr == f"report: {page}\n"
    assert browser.read_text() == page.as_uri() + "\n"


def test_far_from_any_screen_it_says_where_the_page_lies(script: Path) -> None:
    page = script.with_name("a.html")

    result = convert(script, "--report", page, "--open", **FAR_AWAY)

    assert result.exit_code == 0
    assert result.stderr == (
        f"report: {page}\ndp2ddp: no browser to open here; open it yourself: {page.as_uri()}\n"
    )


def test_a_browser_that_does_not_start_is_no_failure(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = script.with_name("broken")
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    choose(program, monkeypatch)

    open_page(script, {"BROWSER": str(program)})

    assert "open it yourself: file://" in capsys.readouterr().err


def test_a_browser_of_text_does_not_take_the_terminal(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import webbrowser

    opened: list[str] = []
    text_browser = webbrowser.GenericBrowser("w3m")
    monkeypatch.setattr(text_browser, "open", opened.append)
    monkeypatch.setattr(webbrowser, "get", lambda: text_browser)

    open_page(script, {"DISPLAY": ":0"})

    assert opened == []
    assert "open it yourself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "system", "seen"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"BROWSER": "code --open"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "darwin", False),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22", "DISPLAY": "localhost:10.0"}, "linux", True),
    ],
)
def test_who_has_a_screen(variables: dict[str, str], system: str, seen: bool) -> None:
    assert has_screen(variables, system) == seen


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
def test_verify_and_bench_open_theirs(
    script: Path, browser: Path, server: Server, command: tuple[object, ...]
) -> None:
    result = forked(
        server, script.parent, command[0], "train.py", "-n", 2, *command[1:], "--report", "a.html", "--open"
    )

    assert result.exit_code == 0, result.stderr
    assert browser.read_text() == script.with_name("a.html").as_uri() + "\n"
    assert f"dp2ddp {command[0]}</title>" in script.with_name("a.html").read_text()
