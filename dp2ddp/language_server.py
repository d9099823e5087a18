"""`dp2ddp check` in an editor, by the Language Server Protocol (docs/check.md).

A file is looked at as the command looks at it, with the modules that it imports and by the settings of its
pyproject.toml, as soon as nobody types in it. pygls speaks the protocol.
"""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from dp2ddp import __version__, api
from dp2ddp.errors import Dp2DdpError
from dp2ddp.review.problems import Level, PlacedProblem

SEVERITIES = {
    Level.ERROR: lsp.DiagnosticSeverity.Error,
    Level.WARNING: lsp.DiagnosticSeverity.Warning,
    Level.NOTE: lsp.DiagnosticSeverity.Information,
}
PAUSE = 0.2  # seconds without a change


def language_server() -> LanguageServer:
    """One editor's server, which publishes what is found in its files."""
    server = LanguageServer("dp2ddp", __version__)

    def publish(address: str, diagnostics: list[lsp.Diagnostic]) -> None:
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(address, diagnostics))

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def look(params: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        await asyncio.sleep(PAUSE)
        now = server.workspace.get_text_document(document.uri)
        if now.version == document.version:  # one that is closed has none
            publish(document.uri, diagnostics_of(now))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def forget(params: lsp.DidCloseTextDocumentParams) -> None:
        publish(params.text_document.uri, [])

    return server


def diagnostics_of(document: TextDocument) -> list[lsp.Diagnostic]:
    """What the check finds in a document of an editor."""
    try:
        return _found_in(document)
    except (Dp2DdpError, OSError) as error:  # of its settings, say
        return [_diagnostic(document, str(error))]
    except Exception as error:  # a fault of ours is said, and other files are looked at
        why = f"dp2ddp could not look at this file ({type(error).__name__}: {error}); please report it"
        return [_diagnostic(document, why)]


def _found_in(document: TextDocument) -> list[lsp.Diagnostic]:
    path = Path(document.path)
    if urlsplit(document.uri).scheme != "file" or path.suffix != ".py":
        return []
    checked = api.check(path, text=document.source)
    problems = [problem for problem in checked.problems if Path(problem.file) == path]
    return [
        *(_diagnostic(document, unread.why) for unread in checked.unread),
        *(_of_problem(document, problem) for problem in problems),
    ]


def _of_problem(document: TextDocument, problem: PlacedProblem) -> lsp.Diagnostic:
    text = f"{problem.message}\n{problem.advice}" if problem.advice else problem.message
    return _diagnostic(document, text, problem.line - 1, problem.column - 1, problem.level, problem.code)


def _diagnostic(
    document: TextDocument,
    text: str,
    line: int = 0,
    start: int = 0,
    level: Level = Level.ERROR,
    code: str | None = None,
) -> lsp.Diagnostic:
    """From a column to the end of its line, in the units of the editor."""
    lines = document.lines
    end = max(start, len(lines[line].rstrip())) if line < len(lines) else start
    place = lsp.Range(lsp.Position(line, start), lsp.Position(line, end))
    there = document.position_codec.range_to_client_units(lines, place)
    return lsp.Diagnostic(there, text, SEVERITIES[level], code, source="dp2ddp")
