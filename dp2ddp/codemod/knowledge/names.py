"""Names of one thing: libraries re-export, and scripts say what they like."""

from dp2ddp.codemod.knowledge.reading_methods import of


def _moved(home: str, where: str, words: str) -> dict[str, str]:
    """Names of one module that another has as well."""
    return dict(zip(of(home, words), of(where, words), strict=True))


SPELLINGS = {
    **_moved("torch.nn.parallel", "torch.nn", "DataParallel"),
    **_moved("torch.nn.parallel.data_parallel", "torch.nn", "DataParallel"),
    **{f"torch.nn.parallel.{each}.{each}": f"torch.nn.parallel.{each}" for each in ("data_parallel", "replicate", "parallel_apply")},
    # `scatter_kwargs` is our name: torch has none
    **_moved("torch.nn.parallel.scatter_gather", "torch.nn.parallel", "scatter gather scatter_kwargs"),
    **_moved("torch.nn.parallel.distributed", "torch.nn.parallel", "DistributedDataParallel"),
    **_moved("torch.nn.parallel.comm", "torch.cuda.comm", "broadcast broadcast_coalesced scatter gather reduce_add reduce_add_coalesced"),
    **_moved("torch.nn.utils.convert_parameters", "torch.nn.utils", "vector_to_parameters"),
    **_moved("torch.utils.data.dataloader", "torch.utils.data", "DataLoader"),
    **_moved("torch.random", "torch", "manual_seed seed"),
    **_moved("torch.serialization", "torch", "save load"),
    **_moved("torch.cuda.random", "torch.cuda", "manual_seed manual_seed_all seed seed_all"),
    **_moved("torch.cuda.random", "torch.cuda", "get_rng_state get_rng_state_all set_rng_state set_rng_state_all"),
    **_moved("torch.distributed.distributed_c10d", "torch.distributed", "init_process_group"),
    **_moved("torch.distributed.checkpoint.state_dict_saver", "torch.distributed.checkpoint", "save"),
    **_moved("torch.jit._serialization", "torch.jit", "save"),
    **_moved("torch.utils.tensorboard.writer", "torch.utils.tensorboard", "SummaryWriter"),
    **_moved("torch.multiprocessing", "multiprocessing", "Process Pool Manager Value Array RawValue RawArray Pipe Queue"),
    **_moved("torch.multiprocessing", "multiprocessing", "SimpleQueue JoinableQueue Event Condition Semaphore"),
    **_moved("torch.multiprocessing", "multiprocessing", "BoundedSemaphore Barrier"),
    **_moved("numpy.random.mtrand", "numpy.random", "RandomState seed rand randn shuffle"),
    **_moved("io", "builtins", "open"),
    **_moved("tqdm.std", "tqdm", "tqdm.write"),
    **_moved("tqdm.auto", "tqdm", "tqdm.write"),
    **_moved("multiprocessing.context", "multiprocessing", "Process"),
    **_moved("tensorboardX.writer", "tensorboardX", "SummaryWriter"),
    **_moved("matplotlib.pylab", "matplotlib.pyplot", "savefig"),
    **_moved("torch_geometric.nn.data_parallel", "torch_geometric.nn", "DataParallel"),
    **_moved("torch_geometric.data", "torch_geometric.loader", "DataListLoader DataLoader"),
    **_moved("mmcv.parallel.data_parallel", "mmcv.parallel", "MMDataParallel"),
    **_moved("pylab", "matplotlib.pyplot", "savefig"),
}  # fmt: skip
# Functions that find anything by the name that they are given.
HYDRA = of("hydra.utils", "instantiate get_class get_object get_method call")


def canonical(name: str) -> str:
    """The one spelling of a library's name; torch's modules have torch itself: `torch.optim.torch.nn`."""
    if name.startswith("torch.") and ".torch." in name:
        name = f"torch.{name.rpartition('.torch.')[2]}"
    return SPELLINGS.get(name, name)
