"""A script that is run by the boot finds the world as `python SCRIPT` would have made it; without torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from dp2ddp.comparison.events import event_lines
from dp2ddp.runtime.process.boot import complete_open_files
from tests.cli.scripts import python

REPORT = """
import os, sys
from helper import answer
print(__name__, __file__, sys.argv, sys.path[0], answer)
print(sys.modules["__main__"].__file__ == __file__, __spec__ if "__spec__" in globals() else None)
class Thing: pass
import pickle
print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)
if __name__ == "__main__":
    print("main")
"""
BOOT = """
import statistics
import sys
from dp2ddp.runtime.process.boot import end_of_script, run_as_main
from dp2ddp.runtime.hang.stacks import Ending
end = Ending()
with end_of_script(end):
    run_as_main(sys.argv[1], sys.argv[2], tuple(sys.argv[4:]), sys.argv[3] or None)
print("code", end.code, end.error)
"""


ASKED_AT_ONCE = """
import os, signal, sys
from dp2ddp.runtime.process import boot
from dp2ddp.runtime import run_folder
from dp2ddp.runtime.stage import Stage

def write_status(*told):
    said.append(os.getpid())
    os.kill(os.getpid(), signal.SIGUSR1)

said, boot.write_status = [], write_status
stage = Stage(sys.argv[1], "dp", 1, os.path.dirname(sys.argv[1]), sys.argv[2], "train.py")
run_folder.prepare_run_folder(stage)
boot.run_stage(stage, 0)
print(len(said))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "helper.py").write_text("answer = 42\n")
    return tmp_path


def boot(folder: Path, code: str, *arguments: str, as_module: str = "") -> subprocess.CompletedProcess[str]:
    script = folder / "scripts" / "train.py"
    script.write_text(code)
    return python(folder, "-c", BOOT, script, "scripts/train.py", as_module, *arguments, check=True)


def test_it_is_as_if_started_directly(folder: Path) -> None:
    booted = boot(folder, REPORT, "--lr", "0.1").stdout.removesuffix("code 0 \n")
    plain = python(folder, "scripts/train.py", "--lr", "0.1")
    assert booted == plain.stdout


def test_it_is_as_if_started_as_a_module(folder: Path) -> None:
    code = "import os\n" + REPORT.replace("from helper", "from .helper").replace(
        "__spec__ if", "__spec__.name if"
    )
    code += "from scripts import train\nprint(train.Thing is Thing, sys.path[0] == os.getcwd())\n"
    booted = boot(folder, code, "--lr", "0.1", as_module="scripts.train").stdout.removesuffix("code 0 \n")
    plain = python(folder, "-m", "scripts.train", "--lr", "0.1")
    assert booted == plain.stdout


def test_a_module_beside_the_script_hides_one_that_we_have_imported(folder: Path) -> None:
    (folder / "scripts" / "statistics.py").write_text("answer = 42\n")
    assert boot(folder, "from statistics import answer\nprint(answer)\n").stdout == "42\ncode 0 \n"


def test_the_traceback_begins_in_the_script(folder: Path) -> None:
    result = boot(folder, "def train():\n    raise ValueError('no data')\n\ntrain()\n")
    assert "code 1 ValueError: no data" in result.stdout
    first = result.stderr.splitlines()[1]
    assert "scripts/train.py" in first
    assert "line 4" in first


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("import sys; sys.exit(7)", "code 7", id="number"),
        pytest.param("import sys; sys.exit()", "code 0", id="nothing"),
        pytest.param("import sys; sys.exit('bad data')", "code 1", id="text"),
        pytest.param("raise KeyboardInterrupt", "code 130", id="interrupted"),
        pytest.param("x = (", "code 1 SyntaxError", id="syntax error"),
    ],
)
def test_every_way_to_end_has_its_exit_code(folder: Path, code: str, expected: str) -> None:
    assert expected in boot(folder, code).stdout


def test_a_text_given_to_exit_is_printed(folder: Path) -> None:
    assert boot(folder, "import sys; sys.exit('bad data')").stderr == "bad data\n"


def test_a_script_in_another_encoding_runs(folder: Path) -> None:
    (folder / "scripts" / "latin.py").write_bytes("# coding: latin-1\nprint(len('é'))\n".encode("latin-1"))
    code = "import runpy, os; runpy.run_path(os.path.join(os.path.dirname(__file__), 'latin.py'))"
    assert boot(folder, code).stdout.startswith("1\n")


HASHES = """
import sys
from dp2ddp.runtime.process.boot import have_own_hashes
have_own_hashes(int(sys.argv[1]))
print(hash("dog"))
"""


def test_each_rank_has_the_hashes_that_its_number_seeds(tmp_path: Path) -> None:
    def hash_on(rank: int, seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return python(tmp_path, "-c", HASHES, rank, env=environment, check=True).stdout

    assert hash_on(0, "0") == hash_on(0, "7")
    assert hash_on(1, "0") == hash_on(1, "1") != hash_on(0, "0")


LOOK = """
import os, sys
from dp2ddp.runtime.process.boot import look_in_copies
own, copy = sys.argv[1:]
sys.path += [own, own + "/lib", own + "/.venv", own + "side"]
os.environ["PYTHONPATH"] = "." + os.pathsep + own
look_in_copies([(own, copy)])
print(sys.path[-4:], os.environ["PYTHONPATH"])
"""


def test_modules_on_pythonpath_come_from_the_copy(tmp_path: Path) -> None:
    own, copy = tmp_path / "own", tmp_path / "copy"
    for place in (own / "lib", own / ".venv", copy / "lib"):  # a virtual environment is not copied
        place.mkdir(parents=True)

    printed = python(tmp_path, "-c", LOOK, own, copy).stdout

    paths = [str(copy), str(copy / "lib"), str(own / ".venv"), f"{own}side"]
    assert printed == f"{paths} .{os.pathsep}{copy}\n"


def test_what_a_tensorboard_writer_has_still_to_write_is_written(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path), flush_secs=1000)
    for step in range(5):
        writer.add_scalar("loss", 0.5, step)

    complete_open_files()

    (path,) = tmp_path.iterdir()
    assert event_lines(path) == [f"loss, step {step}: 0.5" for step in range(5)]
    writer.close()


def test_a_terminal_at_which_nobody_sits_has_a_size_and_no_input(tmp_path: Path) -> None:
    """Scripts in the style of a well-known CIFAR one ask `stty size` when they are imported."""
    code = (
        "import os; from dp2ddp.runtime.process.boot import have_terminal; have_terminal()\n"
        "print(os.popen('stty size', 'r').read().split())\n"
        "for _ in range(2):\n    try: input()\n    except EOFError: print('end')\n"
    )
    result = python(tmp_path, "-c", code, stdin=subprocess.DEVNULL)
    assert result.stdout == "['24', '80']\nend\nend\n"


def test_who_is_asked_where_it_stands_as_soon_as_its_number_is_known_lives_on(folder: Path) -> None:
    script = folder / "scripts" / "train.py"
    script.write_text("")
    ended = python(folder, "-c", ASKED_AT_ONCE, script, folder / "run")
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr  # as it begins, and as it ends
