"""The HTML report in a real browser: Chromium, headless, offline; phone and desktop, light and dark, keyboard."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dp2ddp.costs.figures import Sameness
from dp2ddp.report.report_files import write_report
from tests.report import made_up_conversions
from tests.report.made_up import different, evil, failed, report, same
from tests.report.made_up_bench import benchmark, measured

QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = {"phone": 360, "desktop": 1280}
REPORTS: dict[str, Callable[[], Any]] = {
    "same": lambda: report(same()),
    "different": lambda: report(same(2), different(3)),
    "large": lambda: report(different(4, 2000, 200, parted=500)),
    "hung": failed,
    "evil": evil,
    "converted": lambda: made_up_conversions.report("plain"),
    "open": lambda: made_up_conversions.report("hazards"),
    "idiomatic": lambda: made_up_conversions.report("idiomatic"),
    "measured": lambda: benchmark(measured(2), measured(4, Sameness("different", 3))),
}

# The colours that a reader sees: of each text, and of the first ground behind it that is not transparent.
CONTRASTS = """() => {
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    const [r, g, b] = parts.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, svg") || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found;
}"""
PARTS = ("figure svg[role=img]", "table", ".causes > li", ".diff", "a[download]")
NUMBERED = """() => [...document.querySelectorAll("a[href], summary, input, [tabindex='0']")]
  .filter(element => element.checkVisibility()).map((element, at) => element.dataset.at = at).length"""


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> None:
    """Instead of the check after each test: a browser's processes come and go; `browser` checks at its end."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, (
        "no chromium: .ci/environment.py installs it on Debian and Ubuntu (apt-get install chromium)"
    )
    before = set(psutil.Process().children(recursive=True))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield started
        started.close()
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=20)
    assert alive == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    for name, make in REPORTS.items():
        write_report(make(), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="module")
def only_page(browser: Browser) -> Page:
    """One for all tests: a page of its own is a process of its own, which takes two seconds to end."""
    page = browser.new_context(offline=True).new_page()
    page.goto("data:text/html,ready")
    return page


@pytest.fixture
def opened(only_page: Page, files: dict[str, Path]) -> Iterator[Callable[..., Page]]:
    """Opens a report offline; nothing may be logged, asked for, or pop up."""
    troubles: list[str] = []
    listeners: dict[str, Callable[[Any], object]] = {
        "console": lambda message: troubles.append(f"console: {message.text}"),
        "pageerror": lambda error: troubles.append(f"error: {error}"),
        "dialog": lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()),
        "request": lambda asked: asked.url.startswith(("file:", "data:")) or troubles.append(asked.url),
    }

    def open_report(name: str, size: str = "desktop", scheme: Any = "light", media: Any = "screen") -> Page:
        only_page.set_viewport_size({"width": SIZES[size], "height": 800})
        only_page.goto(files[name].as_uri())
        only_page.emulate_media(color_scheme=scheme, media=media)
        return only_page

    for event, listener in listeners.items():
        only_page.on(event, listener)  # type: ignore[call-overload]  # one signature for each event
    yield open_report
    for event, listener in listeners.items():
        only_page.remove_listener(event, listener)
    assert troubles == []


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_screen(opened: Callable[..., Page], name: str, size: str) -> None:
    page = opened(name, size)
    for each in page.query_selector_all("details"):
        each.evaluate("each => { each.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]


@pytest.mark.parametrize("name", ["same", "different", "hung", "converted", "open", "measured"])
def test_dark_and_light_are_two_grounds_and_both_are_readable(opened: Callable[..., Page], name: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page = opened(name, scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 40
        assert min(contrasts)[0] >= 4.5, (scheme, min(contrasts))
    assert len(grounds) == 2


def test_a_hang_is_drawn_with_its_ranks_side_by_side(opened: Callable[..., Page]) -> None:
    for size, columns in (("desktop", 3), ("phone", 1)):
        positions = opened("hung", size).locator(".positions > li")
        texts = [position.inner_text() for position in positions.all()]
        assert [text.splitlines()[0] for text in texts] == ["rank 0", "rank 1", "rank 2"]
        assert "waits in barrier" in texts[0]
        assert "train_ddp.py:120" in texts[0]
        assert "is in save" in texts[1]
        assert "failed at" in texts[2]
        assert len({position.bounding_box()["x"] for position in positions.all()}) == columns  # type: ignore[index]


def test_what_a_run_that_hung_said_is_folded_behind_where_it_stands(opened: Callable[..., Page]) -> None:
    page = opened("hung")
    said = page.locator("#failed .output")
    assert not said.is_visible()
    page.locator("#failed summary").click()
    assert said.inner_text().startswith("Traceback")


def test_reasons_stand_beside_their_lines_where_there_is_room_and_below_them_elsewhere(
    opened: Callable[..., Page],
) -> None:
    for name in ("converted", "different"):  # the pages of convert and of verify
        for size, beside in (("desktop", True), ("phone", False)):
            for hunk in opened(name, size).locator(".hunk.reasoned").all():
                lines, reasons = (
                    hunk.locator(".lines").bounding_box(),
                    hunk.locator(".reasons").bounding_box(),
                )
                assert (reasons["x"] >= lines["x"] + lines["width"]) == beside, (name, size)
                assert (reasons["y"] >= lines["y"] + lines["height"]) != beside, (name, size)


def test_a_code_leads_to_what_its_rule_is(opened: Callable[..., Page]) -> None:
    page = opened("converted")
    codes = {link.inner_text() for link in page.locator(".reason a").all()}
    assert {"DDP101", "DDP201"} <= codes
    for code in codes:
        assert page.locator(f"#{code} td").inner_text()


def test_a_conversion_says_first_what_is_open_then_what_to_do(opened: Callable[..., Page]) -> None:
    heads = [head.inner_text() for head in opened("open").locator("h2").all()]
    assert heads[:3] == ["Hazards", "What to do next", "What changed"]
    heads = [head.inner_text() for head in opened("converted").locator("h2").all()]
    assert heads[:2] == ["What to do next", "What changed"]
    heads = [head.inner_text() for head in opened("idiomatic").locator("h2").all()]
    assert heads[:3] == ["What to do next", "What is not the same", "What changed"]


def test_texts_of_scripts_run_nothing_and_build_nothing(opened: Callable[..., Page]) -> None:
    page = opened("evil")
    assert page.evaluate("document.querySelectorAll('img, iframe, [onerror]').length") == 0
    assert page.evaluate("document.scripts.length") == 2 + page.locator("figure").count()
    for slider in page.locator("input[type=range]").all():
        slider.focus()
        page.keyboard.press("ArrowRight")
    assert "<script>alert(1)</script>" in page.inner_text("output >> nth=0")  # the furthest parameter


@pytest.mark.parametrize("name", ["same", "different", "large"])
def test_every_picture_has_a_name_and_a_description(opened: Callable[..., Page], name: str) -> None:
    page = opened(name)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    names = [node["name"]["value"] for node in tree if node.get("role", {}).get("value") in ("img", "image")]
    assert len(names) == page.locator("figure").count() >= 2
    assert all(len(each) > 30 for each in names)
    landmarks = {node["role"]["value"] for node in tree if "role" in node}
    assert {"banner", "navigation", "main", "contentinfo", "region", "heading", "table"} <= landmarks


def test_headings_go_down_step_by_step(opened: Callable[..., Page]) -> None:
    for name in ("different", "hung", "open", "idiomatic", "measured"):
        levels = opened(name).evaluate(
            "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => +e.tagName[1])"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False))


@pytest.mark.parametrize(("name", "most"), [("different", 5), ("open", 2)])
def test_every_table_has_a_caption_and_heads(opened: Callable[..., Page], name: str, most: int) -> None:
    tables = opened(name).evaluate(
        "[...document.querySelectorAll('table')].map(t => [t.caption?.textContent, t.querySelectorAll('th').length])"
    )
    assert len(tables) >= most
    assert all(caption and heads for caption, heads in tables)


@pytest.mark.parametrize("name", ["different", "open"])
def test_the_keyboard_reaches_every_control_and_focus_is_seen(opened: Callable[..., Page], name: str) -> None:
    page = opened(name)
    wanted = page.evaluate(NUMBERED)
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.dataset.at"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert reached == [str(at) for at in range(wanted)]


def test_a_chart_is_read_with_keys_and_with_the_pointer(opened: Callable[..., Page]) -> None:
    page = opened("different")
    figure = page.locator("#w3-difference")
    slider, output = figure.locator("input"), figure.locator("output")
    assert output.inner_text().startswith("step 7 ")  # where they part
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert output.inner_text().startswith("step 8 ")
    assert slider.get_attribute("aria-valuetext") == output.inner_text()
    figure.locator(".plot").hover(position={"x": 1, "y": 50})
    assert output.inner_text().startswith("step 0 ")


def test_without_javascript_nothing_is_missing(opened: Callable[..., Page], files: dict[str, Path]) -> None:
    scripted = opened("different")
    counts = {part: scripted.locator(part).count() for part in PARTS}
    assert all(counts.values())
    text = re.sub(r"<script>.*?</script>", "", files["different"].read_text(), flags=re.DOTALL)
    files["different"].with_name("plain.html").write_text(text)
    scripted.goto(files["different"].with_name("plain.html").as_uri())
    assert scripted.locator("input").count() == 0
    assert {part: scripted.locator(part).count() for part in PARTS} == counts


def test_on_paper_there_is_the_result_without_what_is_to_be_clicked(opened: Callable[..., Page]) -> None:
    page = opened("different", media="print")
    assert page.locator("h1").is_visible()
    assert page.locator("figure svg[role=img]").first.is_visible()
    assert not page.locator("nav").is_visible()
    assert not page.locator("input").first.is_visible()


def test_all_steps_come_out_of_the_page_as_csv(opened: Callable[..., Page]) -> None:
    page = opened("large")
    with page.expect_download() as waiting:
        page.click("a[download]")
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len(lines) == 2001
    assert lines[0].startswith("step,loss DataParallel,loss rank 0")


def test_a_large_run_makes_a_page_that_a_browser_holds_easily(opened: Callable[..., Page]) -> None:
    page = opened("large")
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    assert page.locator("figure").count() == 2
