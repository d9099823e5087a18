"""Launch files: as an expert writes them, and whatever is in the arguments of a script arrives there."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ipynb import notebook

from dp2ddp.cli import main
from dp2ddp.launch.job import Job, with_port
from tests.ranks import until

pytestmark = pytest.mark.usefixtures("own_folder")
JOINING = "import torch\ntorch.distributed.init_process_group()\n"
PORTED = f"{JOINING}state = torch.load('last.pt')\n"
# what a shell, YAML, Kubernetes or Python would change on the way
NASTY = (
    "it's", '"two words"', "$HOME $(id) $$", "`id`", "a\nb", "#", "*", "", "-x", "\\", "%d", "é", "{}", "no",
)  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "40123",
    "SLURM_NNODES": "2",
    "SLURM_CPUS_PER_TASK": "16",
    "SLURM_JOB_NODELIST": "node[7-8]",
}
WRITTEN = {
    "local": ["-n", "2"],
    "torchrun": ["-n", "2", "-N", "2", "--rendezvous", "node0"],
    "slurm": ["-n", "2", "-N", "2"],
    "kubernetes": ["-n", "2", "-N", "2", "--image", "registry/image:1"],
}


def launch(*arguments: str, text: str = PORTED) -> Result:
    Path("train_ddp.py").write_text(text)
    return CliRunner().invoke(main, ["launch", "train_ddp.py", *arguments])


def written(target: str, *arguments: str) -> str:
    result = launch("--on", target, *WRITTEN[target], "-o", "-", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def received(text: str, *names: str, given: Sequence[str] = ()) -> list[list[str]]:
    """The arguments with which a shell script called these commands, which do not exist here."""
    for name in names:
        command = Path("bin", name)
        command.parent.mkdir(exist_ok=True)
        command.write_text(
            '#!/bin/bash\nprintf "%s\\0" "$(basename "$0")" "$@" >> calls; printf "\\1" >> calls\n'
            "case $0 in */scontrol) echo node7; echo node8;; esac\n"
        )
        command.chmod(0o755)
    Path("launch.sh").write_text(text)
    variables = {**SLURM, "PATH": f"{Path.cwd()}/bin:/usr/bin:/bin"}
    subprocess.run(["bash", "launch.sh", *given], env=variables, check=True)
    calls = Path("calls").read_bytes().decode().split("\1")
    return [call.split("\0")[:-1] for call in calls if call]


class TestShells:
    @pytest.mark.parametrize("target", ["local", "torchrun"])
    def test_arguments_arrive(self, target: str) -> None:
        (call,) = received(written(target, "--", *NASTY), "torchrun")
        assert call[call.index("train_ddp.py") + 1 :] == list(NASTY)

    def test_slurm_starts_one_agent_a_node_that_all_meet_at_the_first(self) -> None:
        text = written("slurm", "--", *NASTY)
        calls = received(text, "scontrol", "srun")
        assert calls[0] == ["scontrol", "show", "hostnames", "node[7-8]"]
        assert calls[1] == shlex.split(
            "srun --cpus-per-task 16 --kill-on-bad-exit=1 torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
            "--rdzv-id 40123 --rdzv-endpoint node7:10123 train_ddp.py"
        ) + list(NASTY)
        assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1 " in text
        assert "#SBATCH --gpus-per-node=2\n#SBATCH --cpus-per-task=16 " in text

    def test_without_scontrol_slurm_does_not_start_each_node_alone(self) -> None:
        text = written("slurm")
        with pytest.raises(subprocess.CalledProcessError):
            received(text, "srun")
        assert not Path("calls").exists()

    def test_a_failed_step_is_a_failed_job(self) -> None:
        text = written("slurm").replace("srun", "sh -c 'exit 7' srun")
        with pytest.raises(subprocess.CalledProcessError) as error:
            received(text, "scontrol")
        assert error.value.returncode == 7

    def test_only_what_can_go_on_is_queued_again(self) -> None:
        once = written("slurm")
        again = written("slurm", "--restarts", "3")
        assert "--no-requeue" in once
        assert "scontrol requeue" not in once
        assert "#SBATCH --requeue" in again
        assert "--max-restarts 3" in again

    def test_the_nodes_meet_where_the_file_is_told(self) -> None:
        text = launch("--on", "torchrun", "-n", "2", "-N", "2", "-o", "-").stdout
        (call,) = received(text, "torchrun", given=["node 0"])
        assert call == shlex.split(
            "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id train-ddp "
            "--rdzv-endpoint 'node 0:29500' train_ddp.py"
        )
        with pytest.raises(subprocess.CalledProcessError):
            received(text, "torchrun")

    @pytest.mark.parametrize(
        ("counted", "asks"),
        [pytest.param("0", True, id="first start"), pytest.param("3", False, id="no turn is left")],
    )
    def test_at_the_time_limit_ranks_end_and_the_job_is_queued_again(self, counted: str, asks: bool) -> None:
        """scancel --signal reaches the ranks; a signal to srun kills them at once (seen with Slurm 22.05)."""
        text = written("slurm", "--restarts", "3")
        Path("bin").mkdir()
        for name, body in {
            "scontrol": "echo scontrol $* >> calls; echo node7",
            "srun": "trap 'echo ranks ended >> calls; exit 1' TERM; echo $$ > step; while :; do sleep 0.1; done",
            "scancel": "echo scancel $* >> calls; kill -TERM $(cat step)",
        }.items():
            Path("bin", name).write_text(f"#!/bin/bash\n{body}\n")
            Path("bin", name).chmod(0o755)
        variables = {**SLURM, "PATH": f"{Path.cwd()}/bin:/usr/bin:/bin", "SLURM_RESTART_COUNT": counted}
        job = subprocess.Popen(["bash", "-c", text], env=variables)
        until(lambda: Path("step").exists() and Path("step").read_text())
        job.send_signal(signal.SIGUSR1)
        assert job.wait(60) != 0
        calls = Path("calls").read_text().splitlines()
        assert calls[1:3] == ["scancel --signal=TERM 40123", "ranks ended"]
        assert calls[3:] == (["scontrol requeue 40123"] if asks else [])


class TestKubernetes:
    def test_arguments_arrive(self) -> None:
        """Kubernetes reads $$ as $, and $(NAME) as a variable; strings of JSON are YAML's."""
        text = written("kubernetes", "--", *NASTY)
        lines = text.split("command:")[1].splitlines()
        items = [json.loads(line.strip()[2:]) for line in lines if line.strip().startswith('- "')]
        assert [item.replace("$$", "$") for item in items] == ["train_ddp.py", *NASTY]

    def test_nobody_but_the_operator_says_where_ranks_meet(self) -> None:
        """Trainer refuses a job that sets one of these (torch.go: must not have reserved envs)."""
        text = written("kubernetes")
        code = "\n".join(line.partition("#")[0] for line in text.splitlines())
        assert "PET_" not in code
        assert "rdzv" not in code


class TestWriting:
    def test_a_file_that_is_there_stays(self) -> None:
        Path("job.sh").write_text("mine\n")
        result = launch("-n", "2", "-o", "job.sh")
        assert result.exit_code == 3
        assert (
            result.stderr
            == "dp2ddp: job.sh: exists already; use --force to overwrite it, or -o to write elsewhere\n"
        )
        assert Path("job.sh").read_text() == "mine\n"
        assert launch("-n", "2", "-o", "job.sh", "--force").exit_code == 0
        assert "torchrun --standalone --nproc-per-node 2 train_ddp.py" in Path("job.sh").read_text()

    @pytest.mark.parametrize(
        ("name", "lead"), [("job.sh", "is a link to mine.sh"), ("again.py", "is the script itself")]
    )
    def test_a_link_is_not_written_through(self, name: str, lead: str) -> None:
        Path("mine.sh").write_text("mine\n")
        Path("job.sh").symlink_to("mine.sh")
        Path("again.py").symlink_to("train_ddp.py")

        result = launch("-n", "2", "-o", name, "--force")

        assert result.exit_code == 3
        assert result.stderr.startswith(f"dp2ddp: {name}: {lead}")
        assert Path("mine.sh").read_text() == "mine\n"
        assert Path("train_ddp.py").read_text() == PORTED

    def test_the_same_file_may_be_written_again(self) -> None:
        for _ in range(2):
            result = launch("-n", "2", "--on", "slurm", "-o", "job.sbatch")
            assert (result.exit_code, result.stdout) == (0, "")
            assert result.stderr == "written: job.sbatch; sbatch job.sbatch\n"


ON_SLURM, MEETING = ["--on", "slurm", "-n", "2"], ["--on", "torchrun", "-N", "2", "--rendezvous"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["-N", "2"], "several nodes need --on torchrun", id="several nodes here"),
        pytest.param(["--on", "slurm"], "--on slurm needs -n", id="no number of GPUs"),
        pytest.param(["--on", "kubernetes", "-n", "2"], "needs --image", id="no image"),
        pytest.param(["--on", "torchrun", "-N", "2"], "need --rendezvous HOST", id="no place to meet"),
        pytest.param(["--on", "kubernetes", "-n", "2", "--image", ""], "needs --image", id="an image without a name"),
        pytest.param([*ON_SLURM, "--time", "tomorrow"], "--time 'tomorrow': minutes, hours:", id="no limit"),
        pytest.param([*ON_SLURM, "--time", "1:2:3:4"], "--time '1:2:3:4': minutes", id="too many colons"),
        pytest.param([*ON_SLURM, "--time", "1\n#SBATCH --wrap=x"], "--time '1", id="a line more"),
        pytest.param([*MEETING, "http://node0"], "--rendezvous 'http://node0': HOST or HOST:PORT", id="an address"),
        pytest.param([*MEETING, "node0:"], "--rendezvous 'node0:'", id="no port behind the colon"),
        pytest.param([*MEETING, "node0:70000"], "a port from 1 to 65535", id="no such port"),
        pytest.param([*MEETING, "node0:0"], "a port from 1 to 65535", id="any port"),
        pytest.param([*MEETING, "::1"], "an IPv6 address in brackets", id="no brackets"),
        pytest.param([*MEETING, ""], "--rendezvous ''", id="nowhere"),
        pytest.param(["--image", "x"], "--image is of --on kubernetes, not of --on local", id="of another target"),
        pytest.param(["--epochs", "1"], "the script's own stand behind --: -- --epochs 1", id="the script's own"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(arguments: list[str], words: str) -> None:
    result = launch(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "limit", ["90", "90:30", "12:00:00", "2-0", "2-12:30", "2-12:30:00", "0", "unlimited"]
)
def test_every_limit_that_sbatch_takes_is_written(limit: str) -> None:
    assert f"#SBATCH --time={limit}\n" in launch(*ON_SLURM, "--time", limit, "-o", "-").stdout


def test_defaults_for_one_place_do_not_hinder_another() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.launch]\nimage = "mine"\ngpus = 2\n')
    assert "--nproc-per-node 2" in launch("-o", "-").stdout
    assert 'image: "mine"' in launch("--on", "kubernetes", "-o", "-").stdout


@pytest.mark.parametrize("target", WRITTEN)
def test_a_secret_is_in_the_command_and_in_no_comment(target: str) -> None:
    arguments = [*WRITTEN[target], "--on", target, "-o", "-", "--", "--api-key", "SECRET", "password=SECRET"]
    text = launch(*arguments).stdout
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert any("--api-key '***' 'password=***'" in line for line in comments)
    assert not any("SECRET" in line for line in comments)
    assert text.count("SECRET") == 2


@pytest.mark.parametrize("options", [[], ["--on", "torchrun", "--rendezvous", "node0"]])
def test_what_is_started_is_said_without_secrets(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.execve", lambda path, words, variables: started.append(words))
    said = launch("-n", "2", *options, "--", "--token", "SECRET").stderr
    assert started[0][-2:] == ["--token", "SECRET"]
    assert (said.count("***"), said.count("SECRET")) == (1, 0)


def test_the_hint_about_options_of_the_script_has_no_secrets() -> None:
    result = launch("--api-key", "SECRET")
    assert result.exit_code == 2
    assert "the script's own stand behind --: -- --api-key '***'" in " ".join(result.stderr.split())
    assert "SECRET" not in result.output


class TestReadiness:
    def test_a_script_that_was_not_converted(self) -> None:
        text = "import torch\n\nnet = torch.nn.DataParallel(torch.nn.Linear(1, 1))\nnet(torch.ones(1, 1))\n"
        result = launch("-n", "2", "-o", "-", text=text)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == (
            "dp2ddp: train_ddp.py:3: still DataParallel, so each rank would train alone on all GPUs; "
            "`dp2ddp convert train_ddp.py` first, then launch what it writes\n"
        )
        assert launch("-n", "1", "-o", "-", text=text).exit_code == 0

    def test_a_script_with_both_is_launched_with_a_word(self) -> None:
        text = f"{PORTED}net = torch.nn.DataParallel(torch.nn.Linear(1, 1))\n"
        result = launch("-n", "2", "-o", "-", text=text)
        assert result.exit_code == 0
        assert "arguments that choose its own process group" in result.stderr

    def test_a_script_that_never_joins_is_launched_with_a_word(self) -> None:
        result = launch("-n", "2", "-o", "-", text="print(1)\n")
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
        assert "nothing in it was found to join a process group" in result.stderr

    def test_a_library_that_wraps_by_itself_is_launched_and_what_stands_around_it_is_said(self) -> None:
        text = "from transformers import Trainer\n\nTrainer(model).train()\n"
        assert launch("-n", "2", "-o", "-", text=text).stderr == ""
        result = launch("-n", "2", "-o", "-", text=text + "print('done')\n")
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
        assert (
            "transformers.Trainer trains it by DDP as it is, and every rank runs the lines around"
            in result.stderr
        )
        fabric = 'from lightning.fabric import Fabric\n\nfabric = Fabric(strategy="dp")\n'
        result = launch("-n", "2", "-o", "-", text=fabric)
        assert result.exit_code == 3
        assert "train_ddp.py:3: still DataParallel" in result.stderr

    def test_what_walks_over_a_set_walks_alike_on_all_ranks(self) -> None:
        result = launch("-n", "2", "-o", "-", text=f"{PORTED}for x in {{'a', 'b'}}:\n    print(x)\n")
        assert "export PYTHONHASHSEED=0\n" in result.stdout

    def test_a_script_that_starts_its_ranks_itself(self) -> None:
        text = f"{PORTED}torch.multiprocessing.spawn(print, nprocs=2)\n"
        result = launch("-n", "2", "-o", "-", text=text)
        assert result.exit_code == 0
        assert "seems to start its ranks itself" in result.stderr

    def test_restarts_of_a_script_that_reads_no_checkpoint(self) -> None:
        options = ["-n", "2", "-o", "-", "--restarts", "1"]
        assert "read a checkpoint" in launch(*options, text=JOINING).stderr
        assert launch(*options).stderr == ""

    def test_a_cluster_gives_out_its_own_gpus(self) -> None:
        text = f'import os\n{PORTED}os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"\n'
        here = launch("-n", "2", "-o", "-", text=text)
        there = launch("--on", "slurm", "-n", "2", "-o", "-", text=text)
        assert here.stderr == ""
        assert "CUDA_VISIBLE_DEVICES" not in there.stdout
        assert "a cluster gives out GPUs itself" in there.stderr

    def test_without_a_gpu_the_number_of_ranks_must_be_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dp2ddp.cli.launch.may_have_gpus", lambda: False)
        result = launch()
        assert result.exit_code == 3
        assert result.stderr == (
            "dp2ddp: no GPU here: -n says how many ranks to start, which then train on the CPU\n"
        )

    def test_a_notebook_must_be_a_script_first(self) -> None:
        notebook(Path(), "x = 1", name="x.ipynb")
        result = CliRunner().invoke(main, ["launch", "x.ipynb", "-n", "2"])
        assert result.exit_code == 3
        assert "torchrun starts scripts; `dp2ddp convert x.ipynb` makes one of it" in result.stderr


@pytest.mark.parametrize(("command", "target"), [("sbatch", "slurm"), ("kubectl", "kubernetes")])
def test_a_cluster_gets_the_file_from_its_own_command(
    monkeypatch: pytest.MonkeyPatch, command: str, target: str
) -> None:
    Path(command).write_text('#!/bin/bash\necho "$@" > arguments; cat > got\nexit $(cat code)\n')
    Path(command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path.cwd()}:/usr/bin:/bin")
    text = written(target)
    Path("code").write_text("0")
    assert launch("--on", target, *WRITTEN[target]).exit_code == 0
    assert Path("got").read_text() == text
    Path("code").write_text("9")
    refused = launch("--on", target, *WRITTEN[target])
    assert (refused.exit_code, "refused it, and ended with 9" in refused.stderr) == (3, True)
    monkeypatch.setenv("PATH", "/nonexistent")
    absent = launch("--on", target, *WRITTEN[target])
    assert (absent.exit_code, f"{command}: there is none here" in absent.stderr) == (3, True)


@pytest.mark.parametrize(
    ("script", "name"),
    [("train.py", "train"), ("src/Train_DDP.py", "train-ddp"), ("1.py", "train-1"), ("é.py", "train")],
)
def test_a_job_has_a_name_that_every_scheduler_takes(script: str, name: str) -> None:
    assert Job(script).name == name


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [("a", "a:29500"), ("a:1", "a:1"), ("10.0.0.1:80", "10.0.0.1:80"), ("[::1]", "[::1]:29500")],
)
def test_a_port_is_added_where_none_is(host: str, endpoint: str) -> None:
    assert with_port(host) == endpoint
