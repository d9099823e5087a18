"""Names of one thing: libraries re-export, and scripts say what they like."""

from __future__ import annotations

SPELLINGS = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.modules.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.data_parallel": "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.replicate.replicate": "torch.nn.parallel.replicate",
    "torch.nn.parallel.parallel_apply.parallel_apply": "torch.nn.parallel.parallel_apply",
    "torch.nn.parallel.scatter_gather.scatter": "torch.nn.parallel.scatter",
    "torch.nn.parallel.scatter_gather.gather": "torch.nn.parallel.gather",
    "torch.nn.parallel.scatter_gather.scatter_kwargs": "torch.nn.parallel.scatter_kwargs",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.random.manual_seed": "torch.manual_seed",
    "torch.random.seed": "torch.seed",
    "torch.serialization.save": "torch.save",
    "torch.serialization.load": "torch.load",
    "torch.cuda.random.manual_seed_all": "torch.cuda.manual_seed_all",
    "numpy.random.mtrand.RandomState": "numpy.random.RandomState",
    "io.open": "builtins.open",
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
