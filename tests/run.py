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
    ("tests", ["pytest", "-n", "2"]),
)


def main() -> int:
    environment.enter("dev")
    environment.browser()
    for name, command in CHECKS:
        arguments = sys.argv[1:] if name == "tests" else []
        environment.say(f"{name}: {' '.join(command + arguments)}")
        code = run([*command, *arguments])
        if code != 0:
            print(f"dp2ddp: {name} failed ({' '.join(command)})", file=sys.stderr)
            return code
    return 0


def run(command: list[str]) -> int:
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}  # two ranks a test, two tests at once, often two cores
    return subprocess.call([sys.executable, "-m", *command], cwd=ROOT, env=variables)


if __name__ == "__main__":
    sys.exit(main())
