"""The result of `bench` as text, JSON, Markdown and page."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.costs.figures import Benchmark, Sameness
from dp2ddp.report.bench_report import bench_document
from dp2ddp.report.json_form import as_text, schema
from dp2ddp.report.text_form import document_text
from dp2ddp.words import duration, size
from tests.report.forms import markdown, page
from tests.report.made_up_bench import benchmark, measured
from tests.report.schema import keys, validate

SCHEMA: dict[str, Any] = schema(Benchmark)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "json.md"
EVIL = "<script>alert(1)</script>|`x`.py"


def bench_text(found: Benchmark) -> str:
    return document_text(bench_document(found))


def real() -> Benchmark:
    """On GPUs, nothing counted."""
    found = measured()
    dp, ddp = (
        dataclasses.replace(each, virtual=False, collectives=None, left_out=0)
        for each in (found.dp, found.ddp)
    )
    return benchmark(dataclasses.replace(found, dp=dp, ddp=ddp))


ALL = {
    "two": lambda: benchmark(measured(2), measured(4, Sameness("different", 3, "parts at step 0"))),
    "one device": lambda: benchmark(measured(1)),
    "real": real,
    "failed": lambda: benchmark(failure="it hangs"),
    "evil": lambda: benchmark(measured(), script=EVIL),
}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_a_document_keeps_to_the_schema(make: Any) -> None:
    validate(as_text(make()), SCHEMA)


def test_the_docs_tell_of_every_key() -> None:
    text = DOCS.read_text().partition("## `dp2ddp bench --json`")[2]
    assert sorted(key for key in keys(SCHEMA) if f"`{key}`" not in text) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0 s"), (0.0000123, "12.3 us"), (0.0123, "12.3 ms"), (1.25, "1.25 s"), (90, "90 s")]
)  # fmt: skip
def test_durations_have_three_digits(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (320, "320 B"), (11048, "11 KB"), (999_600, "1 MB"), (2.5e9, "2.5 GB")]
)
def test_sizes_have_three_digits(count: float, words: str) -> None:
    assert size(count) == words


def test_the_text_says_both_versions_line_by_line() -> None:
    lines = bench_text(benchmark(measured())).splitlines()
    head = "train.py on 2 virtual devices: a step takes 11.5 ms under DataParallel, 5.75 ms under DDP, on the CPU"
    assert lines[0] == head
    found = {line[2:20].strip(): line[20:].split("  ") for line in lines[2:]}
    assert [word.strip() for word in found["step, median"] if word] == ["11.5 ms", "5.75 ms"]
    assert [word.strip() for word in found["between devices"] if word] == [
        "88 KB in 3 copies a step", "48.7 KB a rank in 3 collectives a step",
    ]  # fmt: skip
    assert [word.strip() for word in found["most on device 0"] if word] == ["2 MB", "2 MB"]
    assert "same (verified 4 steps)" in found["training"]


def test_on_gpus_the_headline_is_the_speed_up() -> None:
    (head, *_) = bench_text(real()).splitlines()
    assert head == "train.py on 2 devices: 2.38 times the speed of DataParallel"  # 15.75 ms / 6.625 ms


def test_virtual_devices_say_what_they_cannot_know_in_one_line() -> None:
    def told(found: Benchmark) -> list[str]:
        return [line for line in bench_text(found).splitlines() if line.startswith("Virtual devices")]

    (line,) = told(benchmark(measured(2), measured(4)))
    assert "not those of GPUs" in line
    assert "up to 4 ranks shared 2 processors" in line
    assert told(real()) == []


def test_what_differs_is_told_beside_the_speed() -> None:
    found = benchmark(measured(2, Sameness("different", 3, "parts at step 0")))
    assert "different (verified 3 steps): parts at step 0" in bench_text(found)
    assert "### ❌ train.py on 2 virtual devices" in markdown(found)
    assert "| training | different (verified 3 steps)" in markdown(found)
    assert "different (verified 3 steps): parts at step 0" in page(found)


class Reader(HTMLParser):
    """Every element has its end, and there is one script with code."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if known.get("id"):
            self.ids.append(str(known["id"]))
        self.scripts += tag == "script" and "type" not in known
        if tag not in ("meta", "link", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """<path/>"""


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_the_page_is_whole(make: Any) -> None:
    reader = Reader()
    text = page(make())
    reader.feed(text)
    assert reader.open == []
    assert reader.scripts == 1
    assert len(reader.ids) == len(set(reader.ids))
    assert "<script>alert" not in text
    held = text.partition('id="dp2ddp-bench">')[2].partition("</script>")[0]
    assert json.loads(held)["schema"] == "dp2ddp.bench/2"


def test_markdown_escapes_what_comes_from_a_script() -> None:
    text = markdown(ALL["evil"]())
    assert "<script>" not in text
    assert all(line.count("|") in (0, 3, 4) for line in text.splitlines() if line.startswith("|"))
