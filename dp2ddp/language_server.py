"""`dp2ddp check` in an editor: the Language Server Protocol over two streams (docs/check.md).

A file is looked at as the command looks at it, with the modules that it imports and by the settings of its
pyproject.toml: when it is opened, and, as the editor has it, when it has changed and nothing else is to be answered.
Protocol: https://microsoft.github.io/language-server-protocol.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from dp2ddp import api
from dp2ddp.errors import Dp2DdpError
from dp2ddp.review.problems import Level, PlacedProblem

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601  # of JSON-RPC
SEVERITIES = {Level.ERROR: 1, Level.WARNING: 2, Level.NOTE: 3}
WHOLE_TEXT = 1  # what the editor sends of a document that has changed
CAPABILITIES = {"textDocumentSync": {"openClose": True, "change": WHOLE_TEXT}}

Message = dict[str, Any]  # of the protocol, as JSON has it


@dataclass(frozen=True)
class Wrong:
    """What came in the place of a message."""

    code: int  # of JSON-RPC
    what: str


class LanguageServer:
    """One editor's server: answers requests, and publishes what is found in its files."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._inbox: queue.Queue[Message | Wrong | None] = queue.Queue()  # None: the editor is gone
        self._unseen: dict[str, str] = {}  # address of a document -> its text, which nobody has looked at yet
        self._asked_to_end = False

    def serve(self) -> int:
        """Answer until the editor says `exit`, or is gone; returns the exit code that the protocol asks for."""
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            try:
                message = self._inbox.get(block=not self._unseen)
            except queue.Empty:
                address, text = self._unseen.popitem()
                self._publish(address, diagnostics_of(address, text))
                continue
            if message is None or (isinstance(message, dict) and message.get("method") == "exit"):
                return 0 if self._asked_to_end else 1
            if isinstance(message, Wrong):
                self._send(id=None, error={"code": message.code, "message": message.what})
            else:
                self._take(message)

    def _receive(self) -> None:
        """Until the end: a thread that still reads when Python ends would take it down."""
        message: Message | Wrong | None = {}
        while message is not None and (isinstance(message, Wrong) or message.get("method") != "exit"):
            message = self._read()
            self._inbox.put(message)

    def _read(self) -> Message | Wrong | None:
        """The next message; None at the end of the stream, or where nobody knows any more where the next begins."""
        length = b""
        while (line := self._reader.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = value.strip()
        if not line:
            return None
        if not length.isdigit():
            sys.stderr.write(
                "dp2ddp: lsp: a message without its Content-Length; nothing behind it can be read\n"
            )
            return None
        return _message_of(self._reader.read(int(length)))

    def _send(self, **content: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **content}).encode("utf-8")
        self._writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._writer.flush()

    def _take(self, message: Message) -> None:
        """Answer a request, keep a document; what is neither, or has another shape, is nothing to us."""
        match message:
            case {"id": request, "method": str(method)}:
                self._answer(request, method)
            case {
                "method": "textDocument/didOpen",
                "params": {"textDocument": {"uri": str(address), "text": str(text)}},
            } | {
                "method": "textDocument/didChange",
                "params": {
                    "textDocument": {"uri": str(address)},
                    "contentChanges": [*_, {"text": str(text)}],
                },
            }:
                self._unseen[address] = text
            case {"method": "textDocument/didClose", "params": {"textDocument": {"uri": str(address)}}}:
                self._unseen.pop(address, None)
                self._publish(address, [])

    def _answer(self, request: object, method: str) -> None:
        if self._asked_to_end:
            self._send(id=request, error={"code": INVALID_REQUEST, "message": "shut down already"})
        elif method == "initialize":
            self._send(id=request, result={"capabilities": CAPABILITIES, "serverInfo": {"name": "dp2ddp"}})
        elif method == "shutdown":
            self._asked_to_end = True
            self._send(id=request, result=None)
        else:
            self._send(id=request, error={"code": METHOD_NOT_FOUND, "message": f"no {method} here"})

    def _publish(self, address: str, diagnostics: list[Message]) -> None:
        self._send(
            method="textDocument/publishDiagnostics", params={"uri": address, "diagnostics": diagnostics}
        )


def _message_of(body: bytes) -> Message | Wrong:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        return Wrong(PARSE_ERROR, f"not JSON: {error}")
    return message if isinstance(message, dict) else Wrong(INVALID_REQUEST, "a message is an object")


def diagnostics_of(address: str, text: str) -> list[Message]:
    """What the check finds in a document, `file:///home/me/train.py`, with this text; as the protocol has it."""
    try:
        return _found_in(address, text)
    except (Dp2DdpError, OSError) as error:  # of its settings, say
        return [_diagnostic(str(error), (0, 0))]
    except Exception as error:  # a fault of ours is said, and other files are looked at
        why = f"dp2ddp could not look at this file ({type(error).__name__}: {error}); please report it"
        return [_diagnostic(why, (0, 0))]


def _found_in(address: str, text: str) -> list[Message]:
    parts = urlsplit(address)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or path.suffix != ".py":
        return []
    checked = api.check(path, text=text)
    lines = text.splitlines()
    problems = [problem for problem in checked.problems if Path(problem.file) == path]
    return [
        *(_diagnostic(unread.why, (0, 0)) for unread in checked.unread),
        *(_of_problem(problem, lines) for problem in problems),
    ]


def _of_problem(problem: PlacedProblem, lines: list[str]) -> Message:
    line = lines[problem.line - 1] if problem.line <= len(lines) else ""
    start = len(line[: problem.column - 1].encode("utf-16-le")) // 2  # the protocol counts UTF-16 units
    end = len(line.rstrip().encode("utf-16-le")) // 2
    text = f"{problem.message}\n{problem.advice}" if problem.advice else problem.message
    return _diagnostic(
        text, (problem.line - 1, start), max(start, end), SEVERITIES[problem.level], {"code": problem.code}
    )


def _diagnostic(
    text: str, start: tuple[int, int], end: int = 0, severity: int = 1, more: Mapping[str, str] | None = None
) -> Message:
    line, character = start
    place = {
        "start": {"line": line, "character": character},
        "end": {"line": line, "character": max(character, end)},
    }
    return {"range": place, "severity": severity, "source": "dp2ddp", "message": text, **(more or {})}
