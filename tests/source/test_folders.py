"""What a link leads out of a project to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.folders import leads_out, refuse_links_out


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with files, and links in it and out of it; and another name for its folder."""
    for name in ("project/lib", "shared"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("project/lib/net.py", "shared/net.py"):
        (tmp_path / name).write_text("1\n")
    (tmp_path / "project" / "inside.py").symlink_to("lib/net.py")
    (tmp_path / "project" / "outside.py").symlink_to("../shared/net.py")
    (tmp_path / "project" / "shared").symlink_to("../shared")
    (tmp_path / "again").symlink_to("project")
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("lib/net.py", False),
        ("inside.py", False),
        ("outside.py", True),
        ("shared/net.py", True),
        ("new.py", False),
        ("../shared/net.py", False),  # its name says where it lies
    ],
)
def test_what_leads_out(project: Path, monkeypatch: pytest.MonkeyPatch, name: str, out: bool) -> None:
    assert leads_out(project / name, project) is out
    assert leads_out(project.parent / "again" / name, project.parent / "again") is out
    monkeypatch.chdir(project)
    assert leads_out(Path(name), Path()) is out


def test_it_is_refused_with_both_names(project: Path) -> None:
    refuse_links_out([project / "lib/net.py", project / "inside.py"], project)
    with pytest.raises(SourceError) as told:
        refuse_links_out([project / "lib/net.py", project / "shared/net.py"], project)
    assert f"{project}/shared/net.py: a link leads to {project.parent}/shared/net.py" in str(told.value)
    assert "\n" not in str(told.value)
