"""Mutated scripts through the conversion: `python -m tests.codemod.fuzz 10000 --seed 1` is a long run, for the log.

What has to hold for every input stands in `check`. What fails is shown as small as Hypothesis can make it.
"""

from __future__ import annotations

import argparse
import ast
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from dp2ddp.codemod.conversion import MENTION, Conversion, FileConversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.writing.apply import keeps_other_lines, touched_lines
from dp2ddp.errors import ConversionError, Dp2DdpError
from dp2ddp.source.files import decode_source
from dp2ddp.source.helper_module import NAME
from dp2ddp.source.projects import LocalModule, Project
from tests.codemod.mutations import MUTATIONS, mutated, spelled

ROOT = Path(__file__).resolve().parent.parent.parent
HEADS = (*[b""] * 20, b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n",
         b"#!/usr/bin/env python\n# vim: fileencoding=utf-8\n", b"\x0c", b"\n\n",
         b"# coding: utf-16\n", b"\xff", b"'''words'''\n", b"# \x00\n")  # fmt: skip


@dataclass(frozen=True)
class Input:
    """A script, perhaps a local module that it imports, and what is asked for."""

    script: bytes
    module: bytes | None
    options: Options


def corpus() -> tuple[str, ...]:
    """The scripts that are mutated: those of the corpus and of the examples, small ones too."""
    files = [
        *ROOT.glob("tests/corpus/*/*.py"),
        *ROOT.glob("tests/corpus/*/*/*.py"),
        *ROOT.glob("examples/*/train.py"),
    ]
    return tuple(path.read_text(encoding="utf-8") for path in sorted(files))


SCRIPTS = corpus()
CHANGES = st.lists(st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 2**16)), max_size=12)
OPTIONS = st.builds(Options, helpers=st.sampled_from(HelperPlace))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    text = mutated(
        draw(st.sampled_from(SCRIPTS)),
        draw(st.sampled_from(SCRIPTS)),
        draw(CHANGES),
        strict=draw(st.integers(0, 9)) > 0,  # one in ten need not be Python
    )
    ending = draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "mixed"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "latin-1"]))
    return spelled(text, ending, draw(st.booleans()), draw(st.sampled_from(HEADS)), encoding)


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    script = draw(files())
    module = draw(files()) if draw(st.integers(0, 4)) == 0 else None
    if module is not None:
        script += b"\nimport other\nfrom other import *\n"
    return Input(script, module, draw(OPTIONS))


def check(given_: Input) -> str:
    """What must be true of any input; returns what became of it, for the statistics."""
    try:
        project = project_of(given_)
        conversion = convert(project, given_.options)
    except Dp2DdpError as error:
        return refusal(error)
    for one in conversion.files:
        file_is_sound(one, conversion)
    if not any(MENTION.search(one.before.text) for one in conversion.files):
        assert conversion.entry.data == given_.script
        return "nothing in it"
    again(conversion, given_.options)
    return "hazards" if conversion.hazards else "converted" if conversion.changed else "as it was"


def refusal(error: Dp2DdpError) -> str:
    """What is refused is refused in one line, and is none of our own promises."""
    assert "\n" not in str(error), error
    assert "please report" not in str(error).lower(), error
    return "refused" if isinstance(error, ConversionError) else "not readable"


def project_of(given_: Input) -> Project:
    entry = decode_source(given_.script, Path("train.py"))
    if given_.module is None:
        return Project(entry)
    return Project(entry, (LocalModule("other", decode_source(given_.module, Path("other.py"))),))


def file_is_sound(file: FileConversion, conversion: Conversion) -> None:
    """The bytes outside of the edits are the file's own; what was Python before is Python after."""
    if not file.changed:
        assert file.data == file.before.encoded(file.before.text)
        return
    ast.parse(file.data)
    if compiles(file.before.encoded(file.before.text)):
        assert compiles(file.data), "compiles no more"
    assert file.plan is not None
    anywhere = range(1, file.before.text.count("\n") + file.before.text.count("\r") + 2)  # lines may begin
    assert keeps_other_lines(file.before.text, touched_lines(file.plan.text_edits), file.after, anywhere)
    assert conversion.launch_of()


def compiles(data: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "train.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def again(conversion: Conversion, options: Options) -> None:
    """A second conversion finds nothing to do; half of a conversion is none."""
    if not conversion.changed:
        return
    entry = decode_source(conversion.entry.data, Path("train.py"))
    modules = [LocalModule("other", decode_source(one.data, Path("other.py"))) for one in conversion.modules]
    if conversion.helpers:
        modules.append(LocalModule(NAME, conversion.helpers.before.with_text(conversion.helpers.after)))
    second = convert(Project(entry, tuple(modules)), options)
    assert not second.changed, second.diff()


def fuzz(count: int, number: int) -> Counter[str]:
    """So many inputs, always the same for a number; returns what became of them."""
    outcomes: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=True,
    )  # fmt: skip
    @given(inputs())
    def run(given_: Input) -> None:
        outcomes[check(given_)] += 1

    run()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    start = time.perf_counter()
    outcomes = fuzz(asked.count, asked.seed)
    print(
        f"{sum(outcomes.values())} inputs, seed {asked.seed}, {time.perf_counter() - start:.0f} s: {dict(outcomes)}"
    )


if __name__ == "__main__":
    main()
