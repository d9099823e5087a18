"""What the doctor makes of facts: each that hurts training has advice, each that does not has none of it."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from dp2ddp.doctor import host
from dp2ddp.doctor.examine import Ended, ranks_answer
from dp2ddp.doctor.host import Answer, size
from dp2ddp.doctor.torch_answers import (
    backends_answer,
    cuda_answer,
    devices_answer,
    libraries_answer,
    peers_answer,
    torch_answer,
    torch_answers,
)

MB, GB = 2**20, 2**30
GPU = {"name": "A100", "memory": 80 * GB, "free": 79 * GB, "error": None}
NONE: dict[str, Any] = {
    "version": "2.9.0", "cuda": "12.8", "rocm": None, "available": False, "distributed": True, "gloo": True,
    "nccl": "2.27.3", "devices": [], "peers": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        pytest.param(host.shared_memory_answer((64 * MB, 64 * MB)), "remark", "--shm-size", id="docker's own"),
        pytest.param(host.shared_memory_answer((8 * GB, 10 * MB)), "remark", "filled", id="shm is full"),
        pytest.param(host.shared_memory_answer((8 * GB, 8 * GB)), "good", "", id="enough shm"),
        pytest.param(host.shared_memory_answer(None), "remark", "num_workers=0", id="no shm"),
        pytest.param(host.memory_answer(8 * GB, GB // 2), "remark", "do not fit", id="memory is full"),
        pytest.param(host.memory_answer(8 * GB, 4 * GB), "good", "", id="enough memory"),
        pytest.param(host.open_files_answer(1024, 65536), "remark", "`ulimit -n 65536`", id="few files"),
        pytest.param(host.open_files_answer(resource.RLIM_INFINITY, -1), "good", "", id="unlimited files"),
        pytest.param(host.variables_answer({"RANK": "0", "WORLD_SIZE": "2"}), "remark",
                     "`unset RANK WORLD_SIZE`", id="left over"),
        pytest.param(host.variables_answer({"MASTER_ADDR": "x"}), "good", "", id="an address alone"),
        pytest.param(host.threads_answer({"OMP_NUM_THREADS": "8"}, 8), "remark", "16 threads on 8", id="too many"),
        pytest.param(host.threads_answer({"OMP_NUM_THREADS": "4"}, 8), "good", "", id="as many as cores"),
        pytest.param(host.threads_answer({}, 8), "good", "OMP_NUM_THREADS=4", id="not set"),
        pytest.param(torch_answer("2.3.1+cu121", True), "bad", "2.4 or newer", id="old torch"),
        pytest.param(torch_answer("2.10.0", True), "good", "", id="2.10 is newer than 2.4"),
        pytest.param(torch_answer("2.9.0", False), "bad", "another build", id="not distributed"),
        pytest.param(cuda_answer({**NONE, "cuda": None}, "570.1"), "remark", "build with CUDA", id="build for CPUs"),
        pytest.param(cuda_answer({**NONE, "cuda": None}, None), "good", "", id="CPUs only"),
        pytest.param(cuda_answer(NONE, "470.82"), "remark", "older than this CUDA", id="old driver"),
        pytest.param(cuda_answer({**NONE, "available": True}, "570.1"), "good", "", id="driver and CUDA"),
        pytest.param(devices_answer([]), "good", "`dp2ddp verify` compares on virtual devices", id="no GPU"),
        pytest.param(devices_answer([GPU]), "good", "`dp2ddp verify -n 2`", id="one GPU"),
        pytest.param(devices_answer([GPU, GPU]), "good", "--nproc-per-node 2", id="two GPUs"),
        pytest.param(devices_answer([GPU, {**GPU, "name": "T4"}]), "remark", "the slowest", id="unlike GPUs"),
        pytest.param(devices_answer([GPU, {**GPU, "free": GB}]), "remark", "on GPU 1", id="a busy GPU"),
        pytest.param(devices_answer([{**GPU, "error": "no kernel image"}]), "bad", "no kernel image", id="broken GPU"),
        pytest.param(peers_answer([[True, True], [True, True]]), "good", "", id="P2P"),
        pytest.param(peers_answer([[True, False], [False, True]]), "remark", "NCCL_P2P_DISABLE", id="no P2P"),
        pytest.param(libraries_answer(["transformers"]), "good", "by torchrun", id="a Trainer that wraps"),
        pytest.param(backends_answer(True, None, 2), "remark", "by gloo", id="no NCCL for two GPUs"),
        pytest.param(backends_answer(True, None, 0), "good", "", id="no NCCL, no GPU"),
        pytest.param(backends_answer(False, None, 0), "bad", "another build", id="no gloo"),
    ],
)  # fmt: skip
def test_a_fact_has_its_advice(answer: Answer, state: str, words: str) -> None:
    assert answer.state == state
    assert words in answer.advice
    assert bool(words) == bool(answer.advice)


def test_gpus_alike_are_one_part() -> None:
    busy = {**GPU, "free": 78 * GB}
    assert devices_answer([GPU, busy, GPU]).text == "0, 1, 2: A100, 80 GB, at least 78 GB free"
    other = {**GPU, "name": "T4", "memory": 16 * GB, "free": 15 * GB}
    assert (
        devices_answer([GPU, other, GPU]).text
        == "0, 2: A100, 80 GB, at least 79 GB free; 1: T4, 16 GB, 15 GB free"
    )


def test_pairs_without_p2p_are_named() -> None:
    row = [True, True, False]
    assert peers_answer([row, [True, True, True], [False, True, True]]).text == "P2P: not 0-2"


def test_a_pair_is_asked_for_only_where_there_is_one() -> None:
    names = [answer.name for answer in torch_answers({**NONE, "devices": [GPU], "peers": [[True]]}, None)]
    assert names == ["torch", "CUDA", "GPUs", "backends"]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Ended(1, "", "[rank1]: Traceback\n[rank1]: RuntimeError: no host\nx\n"), "failed: RuntimeError: no host"),
        (Ended(1, "", ""), "failed: torchrun ended with 1"),
        (Ended(None, "", ""), "not done after 5 s: rank 0 waits; rank 1 was not started"),
    ],
)  # fmt: skip
def test_ranks_that_did_not_add_say_why(end: Ended, words: str) -> None:
    answer = ranks_answer(end, ("waits", "was not started"), 5)
    assert (answer.state, answer.text) == ("bad", words)


@pytest.mark.parametrize(
    ("count", "text"),
    [(64 * MB, "64 MB"), (1.5 * GB, "1.5 GB"), (GB, "1 GB"), (2**40, "1 TB"), (2048, "2 KB")],
)
def test_sizes_in_words(count: float, text: str) -> None:
    assert size(count) == text
