"""`dp2ddp check` from the outside: what it reports, in which words, and what it leaves alone."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from ipynb import notebook

import dp2ddp
from dp2ddp.cli import main
from tests.review.sarif import check_log

PORT = """\
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(args.local_rank)
    model = DistributedDataParallel(net.cuda(), device_ids=[0, 1])
    train(model)


if __name__ == "__main__":
    main()
"""
WRAPPED = """\
import os
import torch
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
os.fork()
model(torch.ones(4, 2)).sum().backward()
"""
OLD_ARGUMENT = """\
import argparse
import os
from torch.nn.parallel import DistributedDataParallel
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
rank = parser.parse_args().local_rank
net = DistributedDataParallel(net, device_ids=[rank])
"""
PLAIN = "print('parallel lines, evenly distributed')\n"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)


def codes(*arguments: str) -> list[tuple[str, str, int]]:
    """(file, code, line) of each problem."""
    document = json.loads(check(*arguments, "--format", "json").stdout)
    return [(problem["file"], problem["code"], problem["line"]) for problem in document["problems"]]


class TestWhatIsFound:
    def test_hand_written_ddp(self) -> None:
        Path("train.py").write_text(PORT)

        result = check("train.py")

        assert result.exit_code == 1
        assert "train.py:15:60: error: takes one device, and refuses several (DDP611)" in result.stdout
        assert result.stdout.endswith("1 file: 2 problems\n")

    def test_data_parallel_by_the_rules_of_the_conversion(self) -> None:
        Path("train.py").write_text(WRAPPED)

        document = json.loads(check("--format", "json").stdout)
        wrap, fork = document["problems"]

        assert (wrap["code"], wrap["level"], wrap["line"]) == ("DDP201", "note", 3)
        assert wrap["advice"].startswith("dp2ddp convert train.py: 2 edits in 1 file")
        assert (fork["code"], fork["level"], fork["line"]) == ("DDP906", "error", 4)

    def test_a_hazard_in_a_module_is_found_with_the_script_that_imports_it(self) -> None:
        Path("models.py").write_text(
            f"import os\nimport torch\n\n\ndef build(net):\n    os.fork()\n    return {WRAP}\n"
        )
        Path("train.py").write_text(
            "import models, torch\nnet = models.build(torch.nn.Linear(2, 2))\nprint(net)\n"
        )

        assert ("models.py", "DDP906", 6) in codes()

    def test_a_script_that_is_named_is_read_with_what_it_imports(self) -> None:
        Path("train.py").write_text("from nets import make\nmodel = make()\nprint(model)\n")
        Path("nets.py").write_text(
            "import torch\n\ndef make():\n    return torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
        )

        assert codes("train.py") == [("nets.py", "DDP201", 4)]

        Path("nets.py").write_text("def make():\n    return None\n")
        assert codes("train.py") == []
        Path("nets.py").write_text("import torch\ndef make():\n    return torch.nn.DataParallel(None)\n")
        assert codes("train.py") == [("nets.py", "DDP201", 3)]

    def test_modules_of_a_named_script_are_checked_with_it(self) -> None:
        Path("nets").mkdir()
        Path("nets/__init__.py").write_text("")
        Path("nets/wrap.py").write_text(
            f"{OLD_ARGUMENT}\ndef wrap(net):\n    return DistributedDataParallel(net, device_ids=[0, 1])\n"
        )
        Path("train.py").write_text("from nets.wrap import wrap\nprint(wrap(None))\n")

        assert codes("train.py") == [("nets/wrap.py", "DDP622", 5), ("nets/wrap.py", "DDP611", 10)]

        assert codes("train.py", "nets") == codes("train.py")

    def test_a_module_that_does_nothing_itself_is_read_alone(self) -> None:
        Path("wrap.py").write_text(f"import torch\n\n\ndef build(net):\n    return {WRAP}\n")
        Path("names.py").write_text("from wrap import build\n\n\ndef make():\n    return build(None)\n")

        assert codes("names.py") == []

    def test_a_script_with_very_many_modules_gets_a_note_for_each_wrap(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("nets.py").write_text(
            f"import os\nimport torch\n\n\ndef build(net):\n    os.fork()\n    return {WRAP}\n"
        )
        Path("train.py").write_text(
            "import torch\nimport nets\nprint(nets.build(torch.nn.DataParallel(None)))\n"
        )
        assert ("nets.py", "DDP906", 6) in codes()
        monkeypatch.setattr("dp2ddp.review.data_parallel.MOST", 0)

        document = json.loads(check("--format", "json").stdout)

        assert [(found["file"], found["code"]) for found in document["problems"]] == [
            ("nets.py", "DDP201"), ("train.py", "DDP201")
        ]  # fmt: skip
        assert "it has 2 modules" in document["problems"][0]["advice"]

    def test_a_notebook_has_cells(self) -> None:
        notebook(Path(), "import os\n", WRAPPED, name="a.ipynb")

        assert "a.ipynb, cell 2, line 4: error: os.fork()" in check().stdout

    def test_what_is_no_python_is_named_and_does_not_stop_the_others(self) -> None:
        Path("old.py").write_text("import torch.distributed\nprint 'Python 2'\n")
        Path("train.py").write_text(PORT)

        result = check()

        assert "not read: old.py:2:1: Python 2" in result.stdout
        assert "DDP611" in result.stdout

    def test_what_could_not_be_read_is_no_good_end(self) -> None:
        Path("old.py").write_text("import torch.distributed\nprint 'Python 2'\n")

        assert check().exit_code == 1

    def test_a_fault_of_ours_is_said_and_does_not_stop_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("a.py").write_text(PORT)
        Path("b.py").write_text(PORT)
        from dp2ddp.review import hits

        real = hits.check_file
        monkeypatch.setattr(
            hits,
            "check_file",
            lambda script, rules: 1 / 0 if script.source.name == "a.py" else real(script, rules),
        )

        result = check()

        assert "not read: a.py: could not be looked at (ZeroDivisionError: division by zero)" in result.stdout
        assert "b.py:15:60" in result.stdout

    def test_a_fault_in_one_rule_is_told_with_its_code_and_the_others_go_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("a.py").write_text(PORT)
        from dp2ddp.review.rules.devices import LocalRankArgument, NoSetDevice

        for rule in (LocalRankArgument, NoSetDevice):
            monkeypatch.setattr(rule, "find", lambda rule, script: {}[rule.name])

        result = check()

        assert result.exit_code == 1
        assert "DDP611" in result.stdout
        for code, name in (("DDP610", "no-set-device"), ("DDP622", "local-rank-argument")):
            why = f"not read: a.py: {code} could not look at it (KeyError: '{name}'); please report this file"
            assert result.stdout.count(why) == 1

    def test_nothing_is_imported_or_run(self) -> None:
        Path("train.py").write_text(PORT + "\nopen('ran', 'w')\nimport nowhere_to_be_found\n")

        check()

        assert not Path("ran").exists()

    def test_a_path_that_is_not_there_is_an_error(self) -> None:
        result = check("nowhere.py")

        assert result.exit_code == 3
        assert "nowhere.py: no such file or folder" in result.stderr


WRAP = "torch.nn.DataParallel(net)"


class TestTheConversionInShort:
    """What a note says of `convert` is what `convert` says itself."""

    def test_it_counts_edits_as_convert_does(self) -> None:
        text = "import torch\nfrom torch.nn import DataParallel\nmodel = DataParallel(torch.nn.Linear(2, 2), [0, 1])\n"
        Path("train.py").write_text(f"{text}model(torch.ones(4, 2)).sum().backward()\n")

        (note,) = json.loads(check("--format", "json").stdout)["problems"]
        converted = CliRunner().invoke(main, ["convert", "train.py"]).stdout

        count = converted.partition(": ")[2].partition("\n")[0]  # of "train.py -> train_ddp.py: 4 edits"
        listed = [line for line in converted.splitlines() if re.match(r"  line \d", line)]
        assert note["advice"].startswith(f"dp2ddp convert train.py: {count} in 1 file")
        assert count == f"{len(listed)} edits"
        assert any("nothing uses it any more" in line for line in listed)  # an edit that comes of the others

    @pytest.mark.parametrize("name", ["my train.py", "$HOME.py", "it's.py"])
    def test_the_command_can_be_pasted_into_a_shell(self, name: str) -> None:
        Path(name).write_text(WRAPPED)

        advice = json.loads(check("--format", "json").stdout)["problems"][0]["advice"]

        assert shlex.split(advice)[:3] == ["dp2ddp", "convert", f"{name}:"]

    def test_a_notebook_with_a_blank_in_its_name(self) -> None:
        notebook(Path(), WRAPPED, name="my run.ipynb")

        assert "    dp2ddp convert 'my run.ipynb': " in check().stdout


@pytest.mark.parametrize(
    ("scripts", "line", "code"),
    [
        ([WRAPPED.replace("os.fork()\n", "")], "1 file: no problems, 1 note", 0),
        ([WRAPPED], "1 file: 1 problem, 1 note", 1),
        ([PORT, WRAPPED], "2 files: 3 problems, 1 note", 1),
    ],
)
def test_problems_and_notes_are_counted_apart_and_a_note_is_no_failure(
    scripts: list[str], line: str, code: int
) -> None:
    for number, text in enumerate(scripts):
        Path(f"train{number}.py").write_text(text)

    result = check()

    assert result.stdout.endswith(f"\n{line}\n")
    assert result.exit_code == code


class TestWhatIsLeftOut:
    def test_a_comment_leaves_a_rule_out_on_its_line(self) -> None:
        line = "    model = DistributedDataParallel(net.cuda(), device_ids=[0, 1])"
        Path("train.py").write_text(PORT.replace(line, f"{line}  # dp2ddp: ignore[DDP611]"))

        assert "DDP611" not in {code for _, code, _ in codes()}

    def test_a_hazard_that_somebody_accepted_is_none(self) -> None:
        Path("train.py").write_text(
            WRAPPED.replace("os.fork()", "os.fork()  # dp2ddp: accept[DDP906] a test")
        )

        assert {code for _, code, _ in codes()} == {"DDP201"}

    def test_select_and_ignore(self) -> None:
        Path("train.py").write_text(PORT)

        assert {code for _, code, _ in codes("--select", "DDP61,DDP622")} == {"DDP611", "DDP622"}
        assert "DDP611" not in {code for _, code, _ in codes("--ignore", "DDP61")}

    def test_settings_of_the_project(self) -> None:
        Path("src").mkdir()
        Path("src/train.py").write_text(PORT)
        Path("src/old.py").write_text(PORT)
        Path("pyproject.toml").write_text(
            '[tool.dp2ddp]\nselect = ["DDP6"]\nignore = ["DDP605"]\n'
            '[tool.dp2ddp.per-file-ignores]\n"src/old.py" = ["DDP6"]\n'
        )

        found = codes("src")

        assert {file for file, _, _ in found} == {"src/train.py"}
        assert {code for _, code, _ in found} == {"DDP611", "DDP622"}

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ('selct = ["DDP6"]', "has no key 'selct' (did you mean select?)"),
            ('select = ["DDP6255"]', "DDP6255: no such rule (did you mean DDP625?)"),
            ('select = "DDP6"', "select is a list of codes"),
            ("select = [", "not TOML"),
        ],
    )
    def test_a_mistake_in_the_settings_is_an_error(self, table: str, message: str) -> None:
        Path("pyproject.toml").write_text(f"[tool.dp2ddp]\n{table}\n")
        Path("train.py").write_text(PORT)

        result = check()

        assert result.exit_code == 3
        assert message in result.stderr

    def test_an_unknown_code_on_the_command_line_is_a_usage_error(self) -> None:
        Path("train.py").write_text(PORT)

        result = check("--select", "DDP66")

        assert result.exit_code == 2
        assert "did you mean DDP606?" in result.stderr

    def test_a_baseline_knows_old_problems_wherever_they_move(self) -> None:
        Path("train.py").write_text(PORT)
        assert check("--baseline", "known.json", "--write-baseline").exit_code == 0

        Path("train.py").write_text("# a new line\n" + PORT + "print(dist.all_reduce(x) / 2)\n")
        result = check("--baseline", "known.json")

        assert result.exit_code == 1
        assert "1 file: 1 problem, 2 known by the baseline" in result.stdout

    @pytest.mark.parametrize(
        "content",
        [
            "print('mine')\n",
            '{"version": 1}',
            '{"version": 1, "problems": [], "mine": 1}',
            "[1, 2]",
            "1",
            "\xff",
        ],
    )
    def test_a_file_that_is_no_baseline_is_not_overwritten(self, content: str) -> None:
        Path("train.py").write_text(PORT)
        Path("victim").write_bytes(content.encode("latin-1"))

        result = check("--write-baseline", "--baseline", "victim")

        assert result.exit_code == 3
        assert result.stderr == (
            "dp2ddp: victim: exists, and is no baseline of dp2ddp check; "
            "name another file by --baseline, or remove this one\n"
        )
        assert Path("victim").read_bytes() == content.encode("latin-1")

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_a_baseline_of_any_version_is_overwritten(self, version: int) -> None:
        entry = '{"file": "old.py", "code": "DDP611", "line": "x"}'
        Path("known.json").write_text(f'{{"version": {version}, "problems": [{entry}]}}')
        Path("train.py").write_text(PORT)

        assert check("--baseline", "known.json", "--write-baseline").exit_code == 0
        assert "old.py" not in Path("known.json").read_text()

    def test_a_baseline_is_written_whole_or_not_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("train.py").write_text(PORT)
        check("--baseline", "known.json", "--write-baseline")
        before = Path("known.json").read_bytes()
        Path("train.py").write_text(PORT + "print(dist.all_reduce(x) / 2)\n")
        monkeypatch.setattr(os, "fsync", full)

        result = check("--baseline", "known.json", "--write-baseline")

        assert (result.exit_code, result.stderr) == (
            3,
            "dp2ddp: known.json: cannot be written (No space left on device)\n",
        )
        assert Path("known.json").read_bytes() == before

    def test_a_baseline_that_is_not_there_is_named(self) -> None:
        Path("train.py").write_text(PORT)

        result = check("--baseline", "known.json")

        assert result.exit_code == 3
        assert result.stderr == "dp2ddp: known.json: no such file; --write-baseline writes one\n"

    def test_a_baseline_that_knows_too_much_says_so(self) -> None:
        Path("train.py").write_text(PORT)
        check("--baseline", "known.json", "--write-baseline")
        Path("train.py").write_text(PORT.replace("[0, 1]", "[args.local_rank]"))

        assert "1 of the baseline no longer there" in check("--baseline", "known.json").stdout


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestFormats:
    def test_sarif(self) -> None:
        Path("a b.py").write_text(PORT)
        Path("old.py").write_text("import torch.distributed\nprint 'Python 2'\n")

        log = json.loads(check("--format", "sarif").stdout)

        check_log(log)
        (run,) = log["runs"]
        result = next(result for result in run["results"] if result["ruleId"] == "DDP611")
        location = result["locations"][0]["physicalLocation"]
        assert location == {
            "artifactLocation": {"uri": "a%20b.py"},
            "region": {"startLine": 15, "startColumn": 60},
        }
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "DDP611"
        assert "old.py" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]

    def test_annotations_of_github(self) -> None:
        Path("a,b.py").write_text(PORT)

        lines = check("--format", "github").stdout.splitlines()

        assert (
            "::error file=a%2Cb.py,line=15,col=60,title=DDP611::takes one device, and refuses several%0Astart a "
            "process for each device, and pass device_ids=[local_rank]" in lines
        )


class TestTwice:
    """In one process nothing is remembered."""

    def test_a_changed_module_outside_of_the_paths_counts(self) -> None:
        Path("scripts").mkdir()
        Path("build.py").write_text(f"import torch\n\n\ndef build(net):\n    return {WRAP}\n")
        Path("scripts/train.py").write_text(
            "import sys\nsys.path.insert(0, '.')\nimport torch\nfrom torch.nn import DataParallel\n"
            "from build import build\n"
            "net = build(torch.nn.Linear(2, 2))\n"
        )
        assert "DDP906" not in {code for _, code, _ in codes("scripts")}
        Path("build.py").write_text(
            f"import os\nimport torch\n\n\ndef build(net):\n    os.fork()\n    return {WRAP}\n"
        )

        assert "DDP906" in {code for _, code, _ in codes("scripts")}


class TestEditors:
    """A text from stdin, by the name that it will have."""

    def run(self, text: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["check", *arguments], input=text, catch_exceptions=False)

    def test_what_the_editor_has_counts_and_not_what_lies_there(self) -> None:
        Path("train.py").write_text(PLAIN)

        result = self.run(PORT, "-", "--stdin-filename", "train.py")

        assert "train.py:15:60: error: takes one device, and refuses several (DDP611)" in result.stdout
        assert check("train.py").exit_code == 0

    def test_data_parallel_code_is_read_with_its_modules(self) -> None:
        Path("nets.py").write_text("import torch\nclass Net(torch.nn.Linear):\n    pass\n")
        text = "import torch, os, nets\nmodel = torch.nn.DataParallel(nets.Net(2, 2))\nos.fork()\nmodel(1)\n"

        lines = self.run(text, "-", "--stdin-filename", "train.py").stdout.splitlines()

        assert [line.split(" ")[0] for line in lines if line[0] != " "][:2] == [
            "train.py:2:9:",
            "train.py:3:1:",
        ]

    def test_settings_and_comments_count(self) -> None:
        Path("pyproject.toml").write_text('[tool.dp2ddp.per-file-ignores]\n"old/*" = ["DDP611"]\n')

        result = self.run(PORT, "-", "--stdin-filename", "old/train.py", "--select", "DDP611")

        assert result.stdout == "1 file: nothing found\n"

    def test_what_is_not_finished_yet_is_said(self) -> None:
        result = self.run("import torch.distributed\nif dist.get_rank(", "-", "--stdin-filename", "train.py")

        assert "not read: train.py:2" in result.stdout

    @pytest.mark.parametrize(
        "arguments", [["-"], ["--stdin-filename", "a.py"], ["-", "b.py", "--stdin-filename", "a.py"]], ids=str
    )
    def test_half_of_it_is_a_usage_error(self, arguments: list[str]) -> None:
        assert self.run("", *arguments).exit_code == 2


class Told(dp2ddp.Progress):
    """Keeps what is said to be done."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def begin(self, text: str) -> None:
        self.texts.append(text)


class TestManyFiles:
    def test_it_tells_how_far_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dp2ddp.review.checking.TOLD", 2)
        for number in range(5):
            Path(f"plain{number}.py").write_text(PLAIN)
        Path("train.py").write_text(WRAPPED)
        Path("wrong.py").write_text(PORT)
        told = Told()

        dp2ddp.check(".", progress=told)

        assert told.texts == [
            *(f"searching files: {place} of 7" for place in (0, 2, 4, 6)),
            *(f"reading files: {place} of 2" for place in (1, 2)),
            "planning conversions: 1 of 1",
        ]

    def test_files_are_checked_side_by_side(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(6):
            Path(f"train{number}.py").write_text(PORT)
        alone = codes()
        monkeypatch.setattr("dp2ddp.review.hits.PARALLEL", 2)
        monkeypatch.setattr("os.cpu_count", lambda: 2)

        assert codes() == alone
        assert len(alone) == 12

    def test_files_without_a_hit_are_searched_and_nothing_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """To resolve 2,500 names took a tenth of the time that ten hits take."""
        Path("train.py").write_text(PORT)
        for number in range(50):
            Path(f"plain_{number}.py").write_text("print('no model here')\n")
        resolve, resolved = os.path.realpath, []
        monkeypatch.setattr(
            os.path, "realpath", lambda path, **options: resolved.append(path) or resolve(path, **options)
        )

        assert check().exit_code == 1

        assert not [path for path in resolved if "plain" in str(path)]

    @pytest.mark.parametrize("waits", [True, False])
    def test_garbage_is_collected_afterwards_as_before(self, waits: bool) -> None:
        Path("train.py").write_text(PORT)
        during = []

        class Asking(Told):
            def begin(self, text: str) -> None:
                during.append(gc.isenabled())

        (gc.disable if waits else gc.enable)()
        try:
            dp2ddp.check(".", progress=Asking())
            assert gc.isenabled() is not waits
        finally:
            gc.enable()
        assert during[-1] is False  # while files are read

    def test_folders_of_tools_are_left_out(self) -> None:
        for folder in (".venv", "node_modules", "__pycache__", ".hidden"):
            os.mkdir(folder)
            Path(folder, "train.py").write_text(PORT)

        assert codes() == []


def test_the_documentation_names_every_option_and_setting(request: pytest.FixtureRequest) -> None:
    from dp2ddp.cli.check import FORMATS, command
    from dp2ddp.review.settings import KEYS

    page = (request.config.rootpath / "docs" / "check.md").read_text(encoding="utf-8")
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]

    assert [name for name in (*options, *KEYS, *FORMATS) if name not in page] == []


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a language in docs/check.md."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


class TestDocumentation:
    @pytest.fixture
    def page(self, request: pytest.FixtureRequest) -> str:
        return (request.config.rootpath / "docs" / "check.md").read_text(encoding="utf-8")

    def test_every_command_in_it_is_one(self, page: str) -> None:
        from dp2ddp.cli.check import command

        Path("train.py").write_text(PLAIN)
        lines = re.findall(r"dp2ddp check([^\n`>|\"#\\]*)", "\n".join(blocks(page, "(?:yaml|sh|toml)")))

        assert len(lines) >= 4
        for line in lines:
            command.make_context("check", line.split())

    def test_workflows_have_what_their_services_read(self, page: str, request: pytest.FixtureRequest) -> None:
        github, scanning, hooks = map(yaml.safe_load, blocks(page, "yaml"))
        offered = yaml.safe_load((request.config.rootpath / ".pre-commit-hooks.yaml").read_text())

        assert github["jobs"]["check"]["runs-on"] == "ubuntu-latest"
        assert github["jobs"]["check"]["steps"][-1]["run"] == "dp2ddp check --format github"
        assert scanning[1]["with"]["sarif_file"] in scanning[0]["run"]
        assert hooks["repos"][0]["hooks"][0]["id"] == offered[0]["id"]

    def test_editors_understand_the_lines(self, page: str) -> None:
        Path("train.py").write_text(PORT)
        Path("wrapped.py").write_text(WRAPPED)
        Path("warned.py").write_text(
            PORT.replace("[0, 1]", "[0]") + "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
        )
        (tasks,) = (json.loads(block) for block in blocks(page, "json"))
        pattern = tasks["tasks"][0]["problemMatcher"]["pattern"]

        lines = check().stdout.splitlines()

        found = [match for line in lines if (match := re.match(pattern["regexp"], line))]
        assert [
            (match[pattern["file"]], match[pattern["code"]], int(match[pattern["line"]])) for match in found
        ] == codes()
        assert {match[pattern["severity"]] for match in found} == {"error", "warning", "note"}


def test_a_library_that_wraps_by_itself_is_a_note_once_a_file() -> None:
    Path("own.py").write_text("import transformers\nclass Mine(transformers.Trainer):\n    pass\n")
    Path("train.py").write_text(
        "from transformers import Trainer\ndef main(model):\n    Trainer(model).train()\n    Trainer(model).train()\n"
    )
    Path("other.py").write_text("from transformers import AutoModel, TrainerCallback\nprint(AutoModel)\n")

    result = check(".")

    assert result.exit_code == 0
    assert codes(".") == [("own.py", "DDP208", 2), ("train.py", "DDP208", 3)]

    Path("own.py").write_text(
        "import transformers\nclass Mine(transformers.Trainer):  # dp2ddp: ignore[DDP208]\n    pass\n"
    )
    Path("train.py").write_text(
        "import ddp_helpers\nfrom transformers import Trainer\njoin_ranks()\nTrainer(model).train()\n"
    )
    assert codes(".") == []  # the second one was converted
