"""Names of one thing: libraries re-export, and scripts say what they like."""

from __future__ import annotations

SPELLINGS = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.data_parallel": "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.replicate.replicate": "torch.nn.parallel.replicate",
    "torch.nn.parallel.parallel_apply.parallel_apply": "torch.nn.parallel.parallel_apply",
    "torch.nn.parallel.scatter_gather.scatter": "torch.nn.parallel.scatter",
    "torch.nn.parallel.scatter_gather.gather": "torch.nn.parallel.gather",
    "torch.nn.parallel.scatter_gather.scatter_kwargs": "torch.nn.parallel.scatter_kwargs",  # our name: torch has none
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.random.manual_seed": "torch.manual_seed",
    "torch.random.seed": "torch.seed",
    "torch.serialization.save": "torch.save",
    "torch.serialization.load": "torch.load",
    **{
        f"torch.cuda.random.{name}": f"torch.cuda.{name}"
        for name in (
            "manual_seed",
            "manual_seed_all",
            "seed",
            "seed_all",
            "get_rng_state",
            "get_rng_state_all",
            "set_rng_state",
            "set_rng_state_all",
        )
    },
    **{
        f"torch.nn.parallel.comm.{name}": f"torch.cuda.comm.{name}"
        for name in (
            "broadcast",
            "broadcast_coalesced",
            "scatter",
            "gather",
            "reduce_add",
            "reduce_add_coalesced",
        )
    },
    "torch.distributed.distributed_c10d.init_process_group": "torch.distributed.init_process_group",
    "torch.distributed.checkpoint.state_dict_saver.save": "torch.distributed.checkpoint.save",
    "torch.jit._serialization.save": "torch.jit.save",
    "numpy.random.mtrand.RandomState": "numpy.random.RandomState",
    **{
        f"numpy.random.mtrand.{name}": f"numpy.random.{name}" for name in ("seed", "rand", "randn", "shuffle")
    },
    "io.open": "builtins.open",
    "tqdm.std.tqdm.write": "tqdm.tqdm.write",
    "tqdm.auto.tqdm.write": "tqdm.tqdm.write",
    "multiprocessing.context.Process": "multiprocessing.Process",
    "torch.utils.tensorboard.writer.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "tensorboardX.writer.SummaryWriter": "tensorboardX.SummaryWriter",
    "torch.multiprocessing.Process": "multiprocessing.Process",
    "torch.multiprocessing.Pool": "multiprocessing.Pool",
    "matplotlib.pylab.savefig": "matplotlib.pyplot.savefig",
    "pylab.savefig": "matplotlib.pyplot.savefig",
}


def canonical(name: str) -> str:
    """The one spelling of a library's name."""
    return SPELLINGS.get(name, name)
