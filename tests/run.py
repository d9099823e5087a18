"""All checks, as the CI runs them: `python3 tests/run.py [arguments for pytest]`.

`--all` runs everything; without it, what is alike is run for a few that have every feature among them (covering.py).
The first time it makes `.venv` and fills it.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402  (found through the line above)

CHECKS = (
    ("formatting", ["ruff", "format", "--check"]),
    ("lint", ["ruff", "check"]),
    ("types", ["mypy"]),
    ("tests", ["pytest", "-p", "xdist", "-n", "3"]),  # of three one often waits
)


def main() -> int:
    environment.enter("dev", meanwhile=environment.browser)
    # tests start the command line hundreds of times; where PYTHONDONTWRITEBYTECODE is set each start would compile it
    subprocess.run([sys.executable, "-m", "compileall", "-q", "dp2ddp", "templates"], cwd=ROOT, check=True)
    started = [(name, command, start(name, command)) for name, command in with_arguments(sys.argv[1:])]
    codes = [wait(name, command, process) for name, command, process in started]
    return next((code for code in codes if code), 0)


def with_arguments(arguments: list[str]) -> list[tuple[str, list[str]]]:
    return [(name, command + arguments * (name == "tests")) for name, command in CHECKS]


def start(name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """All at once: what is quick has said what it has to before the tests say anything."""
    environment.say(f"{name}: {' '.join(command)}")
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",  # two ranks a test, three tests at once, often two cores
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each process would rewrite the asserts of all of hypothesis: 1 s
    }
    return subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=variables)


def wait(name: str, command: list[str], process: subprocess.Popen[bytes]) -> int:
    code = process.wait()
    if code != 0:
        print(f"dp2ddp: {name} failed ({' '.join(command)})", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
