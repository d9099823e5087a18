"""`convert`, `run` and `verify` on notebooks, as a person sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ipynb import notebook

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked

IMPORTS = (
    "%matplotlib inline\n!pip install torch\nimport torch\nimport torch.nn as nn\n"
    "from torch.utils.data import DataLoader, TensorDataset"
)
DATA = (
    "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(11, 3), torch.randn(11, 2))\n"
    "loader = DataLoader(data, batch_size=4, shuffle=True)"
)
MODEL = (
    "model = nn.DataParallel(nn.Linear(3, 2).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "model"
)
LOOP = """%%time
!mkdir -p out
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    display(loss.item())
torch.save(model.state_dict(), "out/last.pt")"""
CELLS = ("md:# Training", IMPORTS, DATA, "md:The *model*:", MODEL, LOOP)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    return notebook(tmp_path, *CELLS)


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


class TestConvert:
    def test_a_script_lies_beside_the_notebook_which_stays(self, training: Path) -> None:
        before = training.read_bytes()

        result = convert(training)

        assert result.exit_code == 0, result.output
        text = training.with_name("train_ddp.py").read_text()
        assert "model = WholeBatchDDP(nn.Linear(3, 2).cuda())" in text
        assert [int(number) for number in re.findall(r"^# %% cell (\d+)$", text, re.MULTILINE)] == [
            1,
            2,
            3,
            4,
        ]
        assert training.read_bytes() == before
        assert {one.name for one in training.parent.iterdir()} == {
            "train.ipynb",
            "train_ddp.py",
            "ddp_helpers.py",
        }

    def test_the_report_names_cells_and_lines_and_lists_what_was_set_aside(self, training: Path) -> None:
        said = convert(training, "--check").stdout

        assert "cell 3, line 1:  DataParallel -> Whole" in said
        assert "cell 4, line 2:  rank 0 makes this call, once for all ranks" in said
        assert (
            "note    cell 1, line 1:  `%matplotlib inline` is set aside: it sets up the notebook (DDP911)"
            in said
        )
        assert "note    cell 1, line 2:  `!pip install torch` is set aside: install" in said
        assert not re.search(r"(?<!cell \d, )line \d", said)

    def test_json_has_the_cell_and_its_line(self, training: Path) -> None:
        document = json.loads(convert(training, "--check", "--json").stdout)

        wrap = next(one for one in document["edits"] if one["code"] == "DDP201")
        assert (wrap["cell"], wrap["line"]) == (3, 1)
        assert ("DDP911", 1, 2) in {(one["code"], one["cell"], one["line"]) for one in document["notes"]}

    def test_a_script_has_no_cells_in_json(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text(
            f"{DATA}\n{MODEL}".replace("torch.manual", "import torch\nimport torch.nn as nn\ntorch.manual", 1)
        )

        document = json.loads(convert(script, "--check", "--json").stdout)

        assert {one["cell"] for one in document["edits"]} == {None}

    def test_the_difference_is_the_one_to_the_script_that_the_notebook_is(self, training: Path) -> None:
        lines = convert(training, "--diff").stdout.splitlines()

        assert lines[:2] == [f"--- {training}", f"+++ {training} (converted)"]
        assert "-model = nn.DataParallel(nn.Linear(3, 2).cuda())" in lines
        assert '-os.system("mkdir -p out")  # !mkdir -p out' in lines
        assert not any(line.startswith(("-# set aside", "-#  %%")) for line in lines)

    def test_a_hazard_names_its_cell(self, tmp_path: Path) -> None:
        path = notebook(tmp_path, IMPORTS, DATA, MODEL, "x = 1\n%run more.py")

        result = convert(path)

        assert result.exit_code == 1
        assert (
            f"hazard  {path}, cell 4, line 2: `%run more.py` runs another file in this notebook (DDP911)"
            in result.stdout
        )
        assert "import that file as a module" in result.stdout

    def test_a_rule_can_be_left_out_and_a_line_silenced(self, tmp_path: Path) -> None:
        path = notebook(tmp_path, IMPORTS, DATA, MODEL, "%my_magic  # dp2ddp: ignore[DDP911]")

        assert convert(path, "--diff").exit_code == 0

    def test_a_notebook_without_data_parallel_has_nothing_to_convert(self, tmp_path: Path) -> None:
        path = notebook(tmp_path, "md:about DataParallel", "%run other.py\nprint('DataParallel')")

        result = convert(path)

        assert (result.exit_code, result.stdout) == (0, f"{path}: nothing to convert\n")
        assert [one.name for one in tmp_path.iterdir()] == ["train.ipynb"]

    def test_in_place_says_what_to_do(self, training: Path) -> None:
        result = convert(training, "--in-place")

        assert result.exit_code == 3
        assert "a notebook stays as it is; leave --in-place out" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_a_notebook_is_not_written(self, training: Path) -> None:
        assert convert(training, "-o", training.with_name("other.ipynb")).exit_code == 2
        assert [one.name for one in training.parent.iterdir()] == ["train.ipynb"]

    def test_it_starts_in_the_folder_of_the_notebook(
        self, training: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(training.parent.parent)

        said = convert(Path(training.parent.name, "train.ipynb")).stdout

        assert (
            f"start it with: cd {training.parent.name} && torchrun --standalone --nproc-per-node gpu train_ddp.py\n"
            in said
        )

    def test_modules_are_converted_with_it(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / "train.py").write_text("raise SystemExit('the script of the same name is another')\n")
        (home / "zoo.py").write_text(
            "import torch\n\ndef net():\n    return torch.nn.DataParallel(torch.nn.Linear(3, 2))\n"
        )
        path = notebook(home, "from zoo import net\nimport torch", "model = net()")

        result = convert(path, "-o", tmp_path / "copy")

        assert result.exit_code == 0, result.output
        assert "WholeBatch" in (tmp_path / "copy" / "zoo.py").read_text()
        assert "init_distributed" in (tmp_path / "copy" / "train_ddp.py").read_text()
        assert "SystemExit" in (tmp_path / "copy" / "train.py").read_text()
        assert "&& torchrun --standalone --nproc-per-node gpu train_ddp.py" in result.stdout

    def test_modules_are_found_where_the_notebook_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "home" / "repository").mkdir(parents=True)
        zoo = "import torch\n\ndef net():\n    return torch.nn.DataParallel(torch.nn.Linear(3, 2))\n"
        (tmp_path / "home" / "repository" / "zoo.py").write_text(zoo)
        path = notebook(tmp_path / "home", "%cd repository", "from zoo import net\nmodel = net()")
        monkeypatch.chdir(tmp_path)

        said = convert(path, "--check").stdout

        assert "home/repository/zoo.py:4" in said
        assert "not found" not in said


@pytest.mark.torchrun
class TestRunning:
    def test_a_notebook_trains_the_same_and_the_scripts_start_in_its_folder(
        self, tmp_path: Path, server: Server
    ) -> None:
        (tmp_path / "deep").mkdir()
        notebook(tmp_path / "deep", *CELLS, "print(open('here.txt').read())")
        (tmp_path / "deep" / "here.txt").write_text("read from the folder of the notebook")

        result = forked(server, tmp_path, "verify", "deep/train.ipynb", "-n", 2)

        assert result.exit_code == 0, result.output
        assert "SAME deep/train.ipynb trains the same" in result.stdout
        assert "cd deep && torchrun --standalone --nproc-per-node gpu train_ddp.py" in result.stdout
        assert "3 on every rank" in result.stdout
        assert "1 file written, the same" in result.stdout
        assert sorted(one.name for one in (tmp_path / "deep").iterdir()) == ["here.txt", "train.ipynb"]

    def test_what_a_run_leaves_out_is_said(self, tmp_path: Path, server: Server) -> None:
        notebook(tmp_path, "print(1)", "%run other.py\nprint(2)")

        result = forked(server, tmp_path, "run", "train.ipynb", "--mode", "dp")

        assert (result.exit_code, result.stdout) == (0, "1\n2\n")
        assert (
            "dp2ddp: train.ipynb, cell 2, line 1: left out: `%run other.py` runs another file"
            in result.stderr
        )

    @pytest.mark.parametrize("mode", ["dp", "ddp"])
    def test_a_traceback_names_cells(self, tmp_path: Path, server: Server, mode: str) -> None:
        notebook(
            tmp_path,
            IMPORTS,
            "def f(x):\n    return model(x).sum() / nothing",
            MODEL,
            "%time y = 1\n\nf(torch.ones(4, 3))",
        )

        result = forked(server, tmp_path, "run", "train.ipynb", "--mode", mode, "-n", 2)

        assert result.exit_code == 3
        assert 'train.ipynb, cell 4", line 3, in <module>' in result.stderr
        assert 'train.ipynb, cell 2", line 2, in f' in result.stderr
        assert any(line.startswith("dp2ddp: train.ipynb: failed") for line in result.stderr.splitlines()[-3:])
