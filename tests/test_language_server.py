"""`dp2ddp lsp`, as an editor speaks with it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.language_server import diagnostics_of

WRONG = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
a = "𝛼"; net = DDP(net, device_ids=[0, 1])
"""


class Editor:
    """Speaks with `dp2ddp lsp`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "dp2ddp", "lsp"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def says(self, **message: Any) -> None:
        self.sends(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def sends(self, body: bytes) -> None:
        assert self.server.stdin
        self.server.stdin.write(b"Content-Length: %d\r\nX-Other: 1\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def hears(self) -> dict[str, Any]:
        assert self.server.stdout
        head = self.server.stdout.readline()
        self.server.stdout.readline()
        answer: dict[str, Any] = json.loads(self.server.stdout.read(int(head.split(b":")[1])))
        return answer

    def shows(self, method: str, file: Path, text: str) -> list[dict[str, Any]]:
        """What stands in a document that is opened, changed or closed."""
        document = {"uri": file.as_uri(), "text": text}
        self.says(
            method=f"textDocument/{method}",
            params={"textDocument": document, "contentChanges": [{"text": "old"}, {"text": text}]},
        )
        published = self.hears()["params"]
        assert published["uri"] == file.as_uri()
        found: list[dict[str, Any]] = published["diagnostics"]
        return found

    def ends(self) -> int:
        self.says(id=2, method="shutdown")
        assert self.hears() == {"jsonrpc": "2.0", "id": 2, "result": None}
        self.says(method="exit")
        return self.server.wait(20)


@pytest.fixture
def editor() -> Iterator[Editor]:
    editor = Editor()
    patience = threading.Timer(60, editor.server.kill)  # an answer that never comes is an error, and no hang
    patience.start()
    yield editor
    patience.cancel()
    editor.server.kill()
    editor.server.communicate()


def test_a_whole_session(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "a script.py"
    editor.says(id=1, method="initialize", params={})
    assert editor.hears()["result"]["capabilities"]["textDocumentSync"] == {"openClose": True, "change": 1}
    editor.says(method="initialized", params={})

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
    assert editor.ends() == 0


def test_the_last_of_many_changes_is_looked_at(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    for number in range(200):
        change = {"text": f"{WRONG}{number}\n"}
        editor.says(
            method="textDocument/didChange",
            params={"textDocument": {"uri": file.as_uri()}, "contentChanges": [change]},
        )
    right = WRONG.replace("[0, 1]", "[rank]")
    looked = 1
    while editor.shows("didChange", file, right) if looked == 1 else editor.hears()["params"]["diagnostics"]:
        looked += 1
    assert looked < 200


def test_it_goes_by_the_settings_of_the_project(tmp_path: Path) -> None:
    address = (tmp_path / "train.py").as_uri()
    (tmp_path / "pyproject.toml").write_text('[tool.dp2ddp]\nignore = ["DDP611"]\n')
    assert diagnostics_of(address, WRONG) == []
    (tmp_path / "pyproject.toml").write_text('[tool.dp2ddp]\nignore = ["DDP999"]\n')
    (diagnostic,) = diagnostics_of(address, WRONG)
    assert "DDP999" in diagnostic["message"]


def test_a_file_that_is_no_python_says_so(tmp_path: Path) -> None:
    text = "from torch.nn.parallel import DistributedDataParallel\ndef f(:\n"
    (diagnostic,) = diagnostics_of((tmp_path / "train.py").as_uri(), text)
    assert "invalid syntax" in diagnostic["message"]


def test_what_is_no_script_of_this_machine_is_left_alone(tmp_path: Path) -> None:
    assert diagnostics_of("untitled:1", WRONG) == []
    assert diagnostics_of((tmp_path / "notes.md").as_uri(), WRONG) == []


def test_what_it_does_not_know_is_refused(editor: Editor) -> None:
    editor.says(id=7, method="textDocument/hover", params={})
    assert editor.hears()["error"]["code"] == -32601
    editor.says(method="$/setTrace", params={})
    assert editor.server.stdin
    editor.server.stdin.close()
    assert editor.server.wait(20) == 1  # the editor is gone, and never asked it to end
    editor.server.stdin = None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{not json", -32700),
        (b"\xff\xfe", -32700),
        (b"", -32700),
        (b"[1, 2]", -32600),
        (b"3", -32600),
        (b"null", -32600),
    ],
)
def test_what_is_no_message_is_answered_and_the_session_goes_on(
    editor: Editor, tmp_path: Path, body: bytes, code: int
) -> None:
    editor.sends(body)

    answer = editor.hears()

    assert (answer["id"], answer["error"]["code"]) == (None, code)
    assert len(editor.shows("didOpen", tmp_path / "train.py", WRONG)) == 1
    assert editor.ends() == 0


@pytest.mark.parametrize("header", [b"Content-Length: many\r\n\r\n", b"X-Other: 1\r\n\r\n"])
def test_where_no_length_is_known_it_ends(editor: Editor, header: bytes) -> None:
    assert editor.server.stdin
    editor.server.stdin.write(header)
    editor.server.stdin.flush()

    assert editor.server.wait(20) == 1


def test_a_notification_of_another_shape_is_nothing_to_it(editor: Editor, tmp_path: Path) -> None:
    for params in ({}, None, [], {"textDocument": {}}, {"textDocument": {"uri": 3}, "contentChanges": []}):
        for method in ("didOpen", "didChange", "didClose"):
            editor.says(method=f"textDocument/{method}", params=params)
    editor.says(method=3)

    assert len(editor.shows("didOpen", tmp_path / "train.py", WRONG)) == 1
    assert editor.ends() == 0


def test_a_fault_in_one_rule_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dp2ddp.review.rules.said_by_torch import NoDestroyProcessGroup

    monkeypatch.setattr(NoDestroyProcessGroup, "find", lambda rule, script: {}["fault"])

    told, found = diagnostics_of((tmp_path / "train.py").as_uri(), WRONG)

    assert "DDP620 could not look at it (KeyError: 'fault'); please report" in told["message"]
    assert found["code"] == "DDP611"


def test_a_fault_beside_the_rules_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp2ddp.api.check", lambda *paths, **options: {}["fault"])

    (told,) = diagnostics_of((tmp_path / "train.py").as_uri(), WRONG)

    assert "could not look at this file (KeyError: 'fault'); please report it" in told["message"]


def test_a_fault_in_the_plan_of_a_conversion_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp2ddp.review.data_parallel.check_project", lambda *project: {}["fault"])
    text = f"{WRONG}net = torch.nn.DataParallel(net)\nnet(a)\n"

    told, found = diagnostics_of((tmp_path / "train.py").as_uri(), text)

    assert "could not be looked at (KeyError: 'fault')" in told["message"]
    assert found["code"] == "DDP611"
