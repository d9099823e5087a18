"""The project's own virtual environment: made once, found again in milliseconds, standard library only.

`examples/demo.py` and `tests/run.py` call `enter()` first, and then go on inside `.venv`. Python 3.6 can
parse this file, so that an old one says what is missing instead of showing a SyntaxError.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable  # noqa: UP035  (a subscript of collections.abc.Callable needs Python 3.9)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "dp2ddp-installed"
ERRORS = VENV / "pip-errors.txt"
OLDEST = (3, 10)
NEEDED = "3.10"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def enter(extra: str = "verify", meanwhile: Callable[[], None] = lambda: None) -> None:
    """Go on inside `.venv`; make and fill it first if need be. Does nothing when we are there already.

    `extra`: "verify" is what running scripts needs, "dev" what tests and documents need besides.
    `meanwhile`: done beside pip, which waits for the network most of its time.
    """
    if sys.version_info < OLDEST:
        stop(f"Python {NEEDED} or newer is needed, this is {sys.version.split()[0]}")
    if Path(sys.prefix).resolve() != VENV.resolve():
        make()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(meanwhile)
        fill(extra)
    other.result()  # raises what was raised there
    if Path(sys.prefix).resolve() != VENV.resolve():
        sys.stdout.flush()
        sys.exit(subprocess.call([str(PYTHON), *sys.argv]))


def make() -> None:
    """A virtual environment in .venv, unless a usable one is there."""
    if PYTHON.exists():
        check_version()
        return
    say("making a virtual environment in .venv")
    command = [sys.executable, "-m", "venv", str(VENV)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        shutil.rmtree(str(VENV), ignore_errors=True)
        stop(why_no_venv(result.stdout))


def why_no_venv(output: str) -> str:
    if "ensurepip" in output:
        return "this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
    return "could not make .venv: " + last_line(output)


def check_version() -> None:
    """A .venv that somebody else made may hold an older Python, or a link to one that is gone."""
    probe = [str(PYTHON), "-c", f"import sys; sys.exit(sys.version_info < {OLDEST})"]
    try:
        usable = subprocess.call(probe) == 0
    except OSError:
        usable = False
    if not usable:
        stop(f"the Python in .venv is broken or older than {NEEDED}; remove .venv and run this again")


def fill(extra: str = "verify") -> None:
    """Install dp2ddp, and the extra, unless that was done for this pyproject.toml."""
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    done = STAMP.read_text().split() if STAMP.exists() else []
    if done[:1] == [digest] and (extra in done or "dev" in done):  # dev has what verify has
        return
    say("installing dp2ddp and what it needs into .venv")
    has_torch = any(VENV.glob("lib*/python*/site-packages/torch"))
    if not has_torch:
        say("the largest part is torch: gigabytes of CUDA libraries to download, 5.5 GB on disk")
    # setuptools first and no build isolation: then a second time needs no network at all
    quiet = ["--quiet"] if has_torch else []  # the rest takes seconds; progress is for gigabytes
    pip(*quiet, "setuptools>=77.0.3")
    pip(*quiet, "--no-compile", "--no-build-isolation", "-e", f"{ROOT}[{extra}]")
    compile_packages()
    STAMP.write_text(f"{digest} {extra}")
    say("installed")


def pip(*what: str) -> None:
    """`pip install`, its progress shown, its errors kept for one line of our own."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *what]
    with open(str(ERRORS), "w") as errors:
        code = subprocess.call(command, cwd=str(ROOT), stderr=errors)
    if code != 0:
        stop(why_no_install(ERRORS.read_text()))


def compile_packages() -> None:
    """On all processors; pip compiles one file after the other, of 16,000. Some are for another Python: no matter."""
    code = (
        "import compileall, sysconfig as s; compileall.compile_dir(s.get_path('purelib'), quiet=2, workers=0)"
    )
    subprocess.call([str(PYTHON), "-c", code])


def browser() -> None:
    """Chromium, in which the tests open the HTML report; installed where that is one command of the system."""
    if any(map(shutil.which, BROWSERS)):
        return
    if not shutil.which("apt-get"):
        stop("the tests open the HTML report in Chromium, and there is none here; install it")
    say("installing chromium, for the tests of the HTML report")
    as_root = [] if not hasattr(os, "geteuid") or os.geteuid() == 0 else ["sudo", "-n"]
    variables = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for words in ("update", "install -y --no-install-recommends chromium"):
        command = [*as_root, "apt-get", "-qq", *words.split()]
        try:
            subprocess.run(
                command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "output", None) or str(error).encode()
            told = last_line(said.decode("utf-8", "replace"))
            stop(f"chromium is missing and could not be installed ({' '.join(command)}): {told}")


def why_no_install(errors: str) -> str:
    """pip's errors in one line; one cause has many symptoms (no network: "no matching distribution")."""
    if "No space left" in errors:
        return "the disk is full; about 6 GB are needed (what pip said: .venv/pip-errors.txt)"
    if "connection broken" in errors or "(from versions: none)" in errors:
        return "pip cannot reach its package index; check the network, run this again (.venv/pip-errors.txt)"
    if "No module named pip" in errors:
        return "the .venv here has no pip; remove .venv and run this again"
    told = [line for line in errors.splitlines() if line.lower().startswith("error:")]
    return f"pip failed: {last_line(told[-1] if told else errors)} (all of it: .venv/pip-errors.txt)"


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no reason given"


def say(text: str) -> None:
    print("==> " + text, flush=True)


def stop(text: str) -> None:
    sys.stderr.write(f"dp2ddp set-up: {text}\n")
    sys.exit(3)
