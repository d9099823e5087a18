"""What a conversion costs: a fresh process that converts, against one that imports libcst, parses and prints.

`python benchmarks/codemod.py [ROUNDS]` prints processor time and its ratios, for 300 and 3,000 lines; the
commands take turns, the quickest round of each counts. The script is the CIFAR example, with its two modules (which
are read and converted too) and without them (models that nobody sees). Byte code is kept in a folder of its own, as
an installed package has it (libcst's lies beside it).
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cifar_bn" / "train.py"
LINES = {300: 1.7, 3000: 2.5}  # of a script, and the goal of its ratio
PARSE = "import sys, libcst; print(len(libcst.parse_module(open(sys.argv[1]).read()).code))"
CONVERT = (
    "import sys; from dp2ddp.source.projects import read_project; from dp2ddp.codemod.convert import convert; "
    "print(len(convert(read_project(sys.argv[1])).after))"
)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = folder
        for lines, goal in LINES.items():
            for modules in (("data.py", "model.py"), ()):
                project = Path(tempfile.mkdtemp(dir=folder))
                for name in modules:
                    shutil.copy(EXAMPLE.with_name(name), project)
                script = project / "train.py"
                script.write_text(of_length(EXAMPLE.read_text(), lines))
                seconds = measure({"libcst": PARSE, "convert": CONVERT}, str(script), rounds, env)
                ratio = seconds["convert"] / seconds["libcst"]
                times = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in seconds.items())
                shape = "with its modules" if modules else "models unseen"
                print(f"{lines} lines, {shape}: {times}; ratio {ratio:.2f} (goal: at most {goal})")


def of_length(text: str, lines: int) -> str:
    """The script, with functions of plain Python behind its imports until it has so many lines."""
    missing = max(0, lines - text.count("\n"))
    filler = "".join(
        f"def unused_{i}(a, b):\n    c = [a * i + b for i in range(10)]\n    return c\n\n\n"
        for i in range(missing // 5)
    )
    head, found, tail = text.partition("\n\n\n")
    return head + found + filler + tail


def measure(commands: dict[str, str], script: str, rounds: int, env: dict[str, str]) -> dict[str, float]:
    """Processor time of the quickest round; one more goes before, and writes the byte code."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, code in commands.items():
            before = processor_time()
            subprocess.run(
                [sys.executable, "-c", code, script], stdout=subprocess.DEVNULL, check=True, env=env
            )
            times[name].append(processor_time() - before)
    return {name: min(column[1:]) for name, column in times.items()}


def processor_time() -> float:
    """The processor time of all children so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
