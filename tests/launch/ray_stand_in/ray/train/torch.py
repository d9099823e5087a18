"""Ray Train's TorchTrainer (2.60): workers with a process group of Ray's own; in each a thread runs the function."""

import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from ray.train import ScalingConfig


@dataclass
class TorchConfig:
    backend: str


@dataclass
class TorchTrainer:
    function: Callable[[], None]
    scaling_config: ScalingConfig
    torch_config: TorchConfig

    def fit(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes = multiprocessing.get_context("fork")
        count = self.scaling_config.num_workers
        workers = [processes.Process(target=self.worker, args=(rank, count, port)) for rank in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * count

    def worker(self, rank: int, world: int, port: int) -> None:
        names = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world,
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
        dist.init_process_group(self.torch_config.backend)
        failed = [True]

        def run() -> None:
            self.function()
            failed.clear()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if not failed:
            dist.barrier()
            dist.destroy_process_group()
        sys.exit(len(failed))
