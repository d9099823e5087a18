"""What starts the converted script: one process a device."""

from dp2ddp.codemod.looks.orders import hash_orders
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.start import join_of, visible_count, visible_text
from dp2ddp.codemod.looks.wraps import find_wraps, largest_count
from dp2ddp.codemod.model.program import Program
from dp2ddp.launch.job import Job


def world_of(program: Program) -> int | None:
    """How many devices the script names, by device_ids or CUDA_VISIBLE_DEVICES; None if it takes what is there."""
    return largest_count(find_wraps(program)) or visible_count(program.entry)


def job_of(program: Program, world: int | None, is_project: bool) -> Job:
    """What torchrun is to start; of no world, with as many ranks as it counts GPUs."""
    source = program.entry.source
    path = source.output if is_project else source.beside
    name = str(path) if path else "train_ddp.py"
    package = program.project.entry_module.rpartition(".")[0]
    module = f"{package}.{name.rpartition('/')[2].removesuffix('.py')}" if package else None
    return Job(name, module, gpus=world, settings=settings_of(program))


def settings_of(program: Program) -> dict[str, str]:
    """The environment variables that ranks need from their first moment on."""
    join, devices = join_of(program.entry), visible_text(program.entry)
    # else each rank starts twice (DDP101)
    settings = {"PYTHONHASHSEED": "0"} if walks_over_sets(program) else {}
    if join and join.late and devices is not None:
        settings["CUDA_VISIBLE_DEVICES"] = devices
    return settings


def walks_over_sets(program: Program) -> bool:
    """Whether an order that comes from the hashes of strings may matter."""
    modules, runs = of_the_user(program), program.reach.runs
    return any(runs(module, node) for module in modules for node in hash_orders(module))
