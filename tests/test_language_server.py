"""`dp2ddp lsp`, as an editor speaks with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol.types import Diagnostic
from pygls.workspace import TextDocument

from dp2ddp.language_server import diagnostics_of

WRONG = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
a = "𝛼"; net = DDP(net, device_ids=[0, 1])
"""


def found_in(file: Path, text: str = WRONG) -> list[Diagnostic]:
    return diagnostics_of(TextDocument(file.as_uri(), text))


class Editor:
    """Speaks with `dp2ddp lsp`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "dp2ddp", "lsp"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.version = 0

    def says(self, **message: Any) -> None:
        assert self.server.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def hears(self) -> dict[str, Any]:
        assert self.server.stdout
        headers = iter(self.server.stdout.readline, b"\r\n")
        fields = dict(line.strip().split(b": ") for line in headers)
        answer: dict[str, Any] = json.loads(self.server.stdout.read(int(fields[b"Content-Length"])))
        return answer

    def types(self, method: str, file: Path, text: str) -> None:
        """A document is opened, changed or closed."""
        self.version += 1
        document = {"uri": file.as_uri(), "text": text, "version": self.version, "languageId": "python"}
        changes = [{"text": "old"}, {"text": text}]
        self.says(
            method=f"textDocument/{method}", params={"textDocument": document, "contentChanges": changes}
        )

    def shows(self, method: str, file: Path, text: str) -> list[dict[str, Any]]:
        """What stands in it then."""
        self.types(method, file, text)
        published = self.hears()["params"]
        assert published["uri"] == file.as_uri()
        found: list[dict[str, Any]] = published["diagnostics"]
        return found


@pytest.fixture
def editor() -> Iterator[Editor]:
    editor = Editor()
    patience = threading.Timer(60, editor.server.kill)  # an answer that never comes is an error, and no hang
    patience.start()
    editor.says(id=1, method="initialize", params={"capabilities": {}})
    assert "textDocumentSync" in editor.hears()["result"]["capabilities"]
    editor.says(method="initialized", params={})
    yield editor
    patience.cancel()
    editor.server.kill()
    editor.server.communicate()


def test_a_whole_session(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "a script.py"
    (diagnostic,) = editor.shows("didOpen", file, WRONG)
    assert diagnostic["code"] == "DDP611"
    assert diagnostic["severity"] == 1
    # 𝛼 is one character, and two units of UTF-16
    line = WRONG.splitlines()[2]
    assert diagnostic["range"]["start"] == {"line": 2, "character": line.index("[0, 1]") + 1}
    assert diagnostic["range"]["end"] == {"line": 2, "character": len(line) + 1}

    assert editor.shows("didChange", file, WRONG.replace("[0, 1]", "[rank]")) == []
    assert len(editor.shows("didChange", file, WRONG)) == 1
    assert editor.shows("didClose", file, "") == []
    editor.says(id=2, method="shutdown")
    assert editor.hears() == {"jsonrpc": "2.0", "id": 2, "result": None}
    editor.says(method="exit")
    assert editor.server.wait(20) == 0


def test_the_last_of_many_changes_is_looked_at(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    editor.types("didOpen", file, WRONG)
    for number in range(200):
        editor.types("didChange", file, f"{WRONG}{number}\n")
    looked, found = 1, editor.shows("didChange", file, WRONG.replace("[0, 1]", "[rank]"))
    while found:
        looked, found = looked + 1, editor.hears()["params"]["diagnostics"]
    assert looked < 200


def test_it_goes_by_the_settings_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.dp2ddp]\nignore = ["DDP611"]\n')
    assert found_in(tmp_path / "train.py") == []
    (tmp_path / "pyproject.toml").write_text('[tool.dp2ddp]\nignore = ["DDP999"]\n')
    (diagnostic,) = found_in(tmp_path / "train.py")
    assert "DDP999" in diagnostic.message


def test_a_file_that_is_no_python_says_so(tmp_path: Path) -> None:
    text = "from torch.nn.parallel import DistributedDataParallel\ndef f(:\n"
    (diagnostic,) = found_in(tmp_path / "train.py", text)
    assert "invalid syntax" in diagnostic.message


def test_what_is_no_script_of_this_machine_is_left_alone(tmp_path: Path) -> None:
    assert diagnostics_of(TextDocument("untitled:1", WRONG)) == []
    assert found_in(tmp_path / "notes.md") == []


def test_a_fault_in_one_rule_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dp2ddp.review.rules.devices import NoSetDevice

    monkeypatch.setattr(NoSetDevice, "find", lambda rule, script: os.environ["FAULT"])
    told, found = found_in(tmp_path / "train.py")
    assert "DDP610 could not look at it (KeyError: 'FAULT'); please report" in told.message
    assert found.code == "DDP611"


def test_a_fault_beside_the_rules_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp2ddp.api.check", lambda *paths, **options: os.environ["FAULT"])
    (told,) = found_in(tmp_path / "train.py")
    assert "could not look at this file (KeyError: 'FAULT'); please report it" in told.message


def test_a_fault_in_the_plan_of_a_conversion_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp2ddp.review.data_parallel.check_project", lambda *project: os.environ["FAULT"])
    told, found = found_in(tmp_path / "train.py", f"{WRONG}net = torch.nn.DataParallel(net)\nnet(a)\n")
    assert "could not be looked at (KeyError: 'FAULT')" in told.message
    assert found.code == "DDP611"
