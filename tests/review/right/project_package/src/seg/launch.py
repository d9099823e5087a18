import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def _run(local_rank, main, world_size, port, config):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("nccl", rank=local_rank, world_size=world_size)
    torch.cuda.set_device(local_rank)
    try:
        main(local_rank, world_size, config)
    finally:
        dist.destroy_process_group()


def launch(main, config):
    world_size = torch.cuda.device_count()
    print("starting", world_size, "processes")
    mp.start_processes(_run, args=(main, world_size, free_port(), config), nprocs=world_size)
