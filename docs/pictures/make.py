"""The pictures of README.md, made anew from real runs: `python docs/pictures/make.py` in the project's environment.

terminal.svg is what `convert` and `verify` say of examples/cifar_bn; progress.svg is what `verify` shows meanwhile, at
a moment of such a run; report.svg is two figures of the report about a port by hand in tests/pairs, whose author added
SyncBatchNorm. Takes a minute or two. tests/test_pictures.py says whether they are what would be made today.
"""

from __future__ import annotations

import html
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from dp2ddp.cli._progress import line_of, picture
from dp2ddp.progress import RunState

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = ROOT / "examples" / "cifar_bn" / "train.py"
PORT = ROOT / "tests" / "pairs" / "convnet" / "sync_batch_norm.py"
COLUMNS = 124
SECONDS = ("verified in", "  --  time")  # lines of no worth on a shared machine


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = copied(SCRIPT, Path(name))
        write("terminal.svg", terminal(conversion(folder), verification(folder)))
    write("progress.svg", progress())
    with tempfile.TemporaryDirectory() as name:
        write("report.svg", report(page_about_the_port(Path(name))))


def copied(script: Path, folder: Path) -> Path:
    """A folder with the original and its modules, and no conversion."""
    for file in script.parent.glob("*.py"):
        if file.name not in ("train_ddp.py", "ddp_helpers.py"):
            shutil.copy(file, folder)
    return folder


def conversion(folder: Path) -> str:
    """What `dp2ddp convert train.py` says there."""
    return dp2ddp(folder, "convert", "train.py")


def verification(folder: Path) -> str:
    """What `dp2ddp verify train.py -n 2` says there, without times."""
    answer = dp2ddp(folder, "verify", "train.py", "-n", "2").splitlines(keepends=True)
    return "".join(line for line in answer if not Text.from_ansi(line).plain.startswith(SECONDS))


def page_about_the_port(folder: Path) -> str:
    """The report of `verify` about the port, written in a folder."""
    page = folder / "report.html"
    options = ("--converted", PORT.name, "-n", "2", "--report", str(page))
    dp2ddp(PORT.parent, "verify", "train.py", *options, expect=1)
    return page.read_text(encoding="utf-8")


def dp2ddp(folder: Path, *arguments: str, expect: int = 0) -> str:
    """What a command prints, with colours."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    variables |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "dp2ddp", *arguments]
    result = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=600
    )
    if result.returncode != expect:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return result.stdout


def write(name: str, picture: str) -> None:
    """A picture beside this script."""
    (HERE / name).write_text(picture, encoding="utf-8")
    print(f"{name}: {len(picture.encode()) / 1000:.0f} kB")


def terminal(converted: str, verified: str) -> str:
    """Both commands in a terminal."""
    console = new_console()
    for command, answer in (
        ("dp2ddp convert train.py", converted),
        ("dp2ddp verify train.py -n 2", verified),
    ):
        show_command(console, command)
        console.print(Text.from_ansi(answer.rstrip()))
        console.print()
    return picture_of(console, "terminal")


def progress() -> str:
    """What `verify` shows while it works, drawn by itself: 14 seconds after its start on a machine of two cores."""
    console, rows = new_console(84), [line_of(run, 21) for run in MOMENT]
    show_command(console, "dp2ddp verify train.py -n 2")
    console.print(picture("2 devices: training", 14, rows))
    console.print()
    return picture_of(console, "progress")


MOMENT = (
    RunState("dp in float64", True, True, 21, None, 8.2),
    RunState("dp in float32", True, True, 21, None, 7.9),
    RunState("ddp in float32", True, False, 17, None, 13.0),
    RunState("ddp in float64", True, False, 12, None, 13.0),
)


def new_console(width: int = COLUMNS) -> Console:
    """A terminal that remembers what it shows."""
    return Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)


def show_command(console: Console, command: str) -> None:
    """As somebody types it."""
    console.print(Text.assemble(("$ ", "green"), (command, "bold")))


def picture_of(console: Console, name: str) -> str:
    """All that a terminal has shown; without fonts that would come over a network."""
    picture = console.export_svg(title="examples/cifar_bn", theme=DIMMED_MONOKAI, unique_id=name)
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)


def words_of(picture: str) -> list[str]:
    """The lines of text in a picture of a terminal, blanks at their ends left out."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return ["".join(text for _, text in sorted(rows[y])).rstrip() for y in sorted(rows)]


CURVES = (
    r"^(?:\.line|\.grid|path\.allowed|\.parted|\.\w+64|\.\w+32|\.wide|path\.wide|\.rank\d|\.area|path\.area)"
    r"[^{]*\{[^}]*\}"
)
WIDTH, PLOT = 920, 170  # of the picture, and the height of a figure in it


def report(page: str) -> str:
    """The verdict, what is likely, and the first two figures of a report."""
    verdict = plain(between(page, "<h1", "</h1>"))
    likely = plain(between(page, '<p class="likely"', "</p>"))
    figures = page.split("<figure ")[1:3]
    parts, top = [heading(verdict, likely)], 96
    for part in figures:
        samples, low = legend(part, top + 38)
        parts.append(samples + figure(part, top, low))
        top = low + PLOT + 38
    style = f"text {{ font: 13px system-ui, sans-serif; fill: #1c2126; }} .soft {{ fill: #55606b; }} {style_of(page)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
        f"<title>{html.escape(verdict)}</title><style>{style}</style>"
        f'<rect width="{WIDTH}" height="{top}" rx="8" fill="#ffffff" stroke="#d5dce3"/>'
        f"{''.join(parts)}</svg>\n"
    )


def heading(verdict: str, likely: str) -> str:
    """The page's head, in its colours."""
    word, _, rest = verdict.partition(" ")
    return (
        '<path d="M20 18h6v58h-6z" fill="#a83200"/><rect x="26" y="18" width="874" height="58" fill="#fdf0ea"/>'
        f'<text x="42" y="44" style="font-size: 14px"><tspan style="font-weight: 700; fill: #a83200">{word}</tspan> '
        f"{html.escape(rest)}</text>"
        f'<text x="42" y="65">{html.escape(likely)}</text>'
    )


def figure(part: str, top: int, low: int) -> str:
    """A figure of the page, its curves from `low` on: title, axes and curves."""
    heights = re.findall(r'top:([\d.]+)%"[^>]*>(.*?)</span>', between(part, '<div class="heights"', "</div>"))
    steps = re.findall(r'left:([\d.]+)%">(.*?)</span>', between(part, '<div class="steps"', "</div>"))
    plot = between(part, '<div class="plot"', "</div>").partition("<svg")[2]
    curves = plot.partition("</desc>")[2]
    left, wide = 70, WIDTH - 90
    texts = [word(20, top + 16, plain(between(part, "<h3", "</h3>")), "font-size: 15px; font-weight: 650")]
    for place, label in heights:
        texts.append(word(left - 8, low + float(place) * PLOT / 100 + 4, label, "text-anchor: end", "soft"))
    for place, label in steps:
        x = left + float(place) * wide / 100
        texts.append(word(x, low + PLOT + 17, label, "text-anchor: middle", "soft"))
    return (
        f"{''.join(texts)}"
        f'<svg x="{left}" y="{low}" width="{wide}" height="{PLOT}" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        f"{curves}"
        f'<rect x="{left}" y="{low}" width="{wide}" height="{PLOT}" fill="none" stroke="#d5dce3"/>'
    )


def word(x: float, y: float, text: str, style: str, kind: str = "") -> str:
    """A text in a picture."""
    shown = html.escape(html.unescape(text))
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" style="{style}">{shown}</text>'


def legend(part: str, y: int) -> tuple[str, int]:
    """Samples of lines and what they are, in as many rows as they need; and where the figure may begin."""
    x, made = 20, ""
    for entry in re.findall(r"<li>(.*?)</li>", between(part, "<ul", "</ul>")):
        style, words = re.findall(r'class="(?:line|swatch) (\w+)"', entry)[0], plain(entry)
        sample = "M0 -9h14v10h-14z" if "swatch" in entry else "M0 -4h26"
        width = 46 + round(6.6 * len(words))
        x, y = (20, y + 19) if x + width > WIDTH - 20 else (x, y)
        kind = style if "swatch" in entry else f"line {style}"
        made += f'<path class="{kind}" transform="translate({x} {y})" d="{sample}"/>'
        made += word(x + 32, y, words, "font-size: 12px", "soft")
        x += width
    return made, y + 14


def style_of(page: str) -> str:
    """The page's own rules for curves, its colours written out."""
    sheet = between(page, "<style", "</style>")
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", sheet.partition("@media")[0]))
    rules = re.findall(CURVES, sheet, re.MULTILINE)
    return re.sub(r"var\(--([\w-]+)\)", lambda name: colours[name[1]], " ".join(rules))


def between(text: str, start: str, end: str) -> str:
    """What stands between the first tag that starts so and its end."""
    return text.partition(start)[2].partition(">")[2].partition(end)[0]


def plain(text: str) -> str:
    """HTML's words."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", text))).strip()


if __name__ == "__main__":
    main()
