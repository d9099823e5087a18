import functools
import os

import torch
import torch.distributed as dist


def begin():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    return local_rank


def end():
    dist.barrier()
    dist.destroy_process_group()


def on_first(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)

    return wrapper
