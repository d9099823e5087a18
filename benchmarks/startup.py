"""What it costs to start: `convert --diff` against importing libcst and parsing, `--help` against a bare click program.

`python benchmarks/startup.py [ROUNDS]` prints ratios; the commands take turns, so that load meets all alike.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cifar_bn" / "train.py"
BARE_CLICK = "import click\n@click.group()\ndef main(): pass\nmain(['--help'])"
PARSE = "import sys, libcst; print(len(libcst.parse_module(open(sys.argv[1]).read()).code))"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(of_length(EXAMPLE.read_text(), 300))
        commands = {
            "python -c pass": ["-c", "pass"],
            "python, libcst, parse, print": ["-c", PARSE, str(script)],
            "dp2ddp convert --diff": ["-m", "dp2ddp", "convert", str(script), "--diff"],
            "a bare click program, --help": ["-c", BARE_CLICK],
            "dp2ddp --help": ["-m", "dp2ddp", "--help"],
        }
        times = {name: statistics.median(column) for name, column in measure(commands, rounds).items()}
    for name, seconds in times.items():
        print(f"{name:32} {1000 * seconds:6.0f} ms")
    convert, parse = times["dp2ddp convert --diff"], times["python, libcst, parse, print"]
    bare = times["a bare click program, --help"]
    print(f"convert --diff / libcst parse    {convert / parse:.2f}   (goal: at most 1.6)")
    print(f"--help / bare click              {times['dp2ddp --help'] / bare:.2f}   (goal: at most 2)")


def of_length(text: str, lines: int) -> str:
    """The script, with functions of plain Python behind its imports until it has so many lines."""
    missing = max(0, lines - text.count("\n"))
    filler = "".join(
        f"def unused_{i}(a, b):\n    c = [a * i + b for i in range(10)]\n    return c\n\n\n"
        for i in range(missing // 5)
    )
    head, found, tail = text.partition("\n\n\n")
    return head + found + filler + tail


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, arguments in commands.items():
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            times[name].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main()
