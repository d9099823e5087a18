"""What functions of libraries do: one row a function, by its canonical name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dp2ddp.codemod.knowledge.names import SPELLINGS


class Does(Enum):
    """What a call does that processes cannot each do by themselves."""

    WRITE = auto()  # files or folders, and what it returns is of no use
    SAVE = auto()  # torch.save
    OPEN = auto()  # a file, to write where the mode says so
    ANSWER = auto()  # from the outside: what it returns differs from call to call
    DOWNLOAD = auto()  # unless the file is there
    TRACK = auto()  # makes an object that writes a log of the run
    HANDLE_LOG = auto()  # makes a logging handler that writes a file
    FOLDER = auto()  # makes a temporary folder that goes with the object
    CLOCK = auto()  # seconds
    CALENDAR = auto()  # the time of day, unless one is given
    SEED = auto()  # all of torch's streams
    SEED_BY_SYSTEM = auto()  # a stream of the process, from the operating system where no seed is given
    MAKE_STREAM = auto()  # a generator, seeded by the operating system where no seed is given
    LOAD_BATCHES = auto()
    WRAP = auto()  # DataParallel, and its parts as functions
    DISTRIBUTE = auto()  # sets up a distributed mode of the script's own
    HAND_OVER = auto()  # threads and processes that hand over in an order of their own
    KEEP_STORE = auto()  # opens a store that one process alone may write
    ASK_PERSON = auto()  # waits for one
    COPY_BY_HAND = auto()  # between devices
    COUNT_DEVICES = auto()
    SET_DEVICE = auto()
    MAKE_DEVICE = auto()
    DEVICE_STATES = auto()
    HANDLE_SIGNAL = auto()
    NAME_BY_CLOCK = auto()  # hydra's folders


@dataclass(frozen=True)
class FunctionRow:
    """What one function does; `position` and `keyword` of the argument that decides (a mode, a seed, a time)."""

    does: Does
    position: int | None = None
    keyword: str | None = None


def _of(home: str, words: str) -> list[str]:
    return [f"{home}.{word}" for word in words.split()]


def _all(does: Does, names: Iterable[str], **given: object) -> dict[str, FunctionRow]:
    return {name: FunctionRow(does, **given) for name in names}  # type: ignore[arg-type]


ROWS: dict[str, FunctionRow] = {
    **_all(Does.WRITE, [
        *_of("os", "makedirs mkdir remove unlink rmdir removedirs rename renames replace symlink link truncate"),
        *_of("os", "chmod chown utime mkfifo mknod"),
        *_of("shutil", "rmtree copy copy2 copyfile copytree copymode copystat move make_archive unpack_archive"),
        *_of("numpy", "save savez savez_compressed savetxt"), *_of("matplotlib.pyplot", "savefig imsave"),
        *_of("imageio", "imwrite imsave mimsave mimwrite volwrite"), *_of("imageio.v2", "imwrite imsave mimsave mimwrite"),
        *_of("scipy", "misc.imsave io.savemat io.mmwrite io.wavfile.write sparse.save_npz"),
        *_of("torchvision.utils", "save_image"), *_of("torchvision.io", "write_png write_jpeg write_video write_file"),
        *_of("torch", "onnx.export jit.save export.save"),
        "cv2.imwrite", "skimage.io.imsave", "tifffile.imwrite", "tifffile.imsave", "soundfile.write", "torchaudio.save", "joblib.dump",
        "faiss.write_index", "safetensors.torch.save_file", "safetensors.torch.save_model", "logging.config.dictConfig",
        "logging.config.fileConfig", "logging.basicConfig", "pathlib.Path.mkdir", "distutils.dir_util.mkpath", "torchvision.utils.save_image",
    ]),
    "torch.save": FunctionRow(Does.SAVE, 1, "f"),
    "builtins.open": FunctionRow(Does.OPEN, 1, "mode"),
    **_all(Does.OPEN, ["gzip.open", "bz2.open", "lzma.open"], position=1, keyword="mode"),
    **_all(Does.OPEN, ["codecs.open", "zipfile.ZipFile", "tarfile.open", "h5py.File"], position=1, keyword="mode"),
    **_all(Does.ANSWER, [
        "os.system", *_of("subprocess", "run call check_call check_output getoutput getstatusoutput"),
        "tempfile.mkdtemp", "tempfile.mktemp", "builtins.input", "getpass.getpass", "os.getpid", "os.getppid", "os.urandom",
        *_of("uuid", "uuid1 uuid4"), *_of("secrets", "token_hex token_bytes token_urlsafe randbelow choice"),
        "socket.gethostname", "platform.node",
    ]),
    **_all(Does.DOWNLOAD, [
        *_of("torch.hub", "load load_state_dict_from_url download_url_to_file"), "torch.utils.model_zoo.load_url",
        *_of("torchvision.datasets.utils", "download_url download_and_extract_archive"), "urllib.request.urlretrieve", "gdown.download",
        "wget.download", "nltk.download", "datasets.load_dataset", *_of("huggingface_hub", "hf_hub_download snapshot_download"),
    ]),
    **_all(Does.TRACK, ["torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter", "visdom.Visdom", "tensorboard_logger.Logger"]),
    **_all(Does.HANDLE_LOG, ["logging.FileHandler", *_of("logging.handlers", "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler")]),
    "tempfile.TemporaryDirectory": FunctionRow(Does.FOLDER),
    **_all(Does.CLOCK, [*_of("time", "time perf_counter monotonic process_time clock time_ns perf_counter_ns monotonic_ns"), "timeit.default_timer"]),
    **_all(Does.CLOCK, _of("datetime.datetime", "now utcnow today")),
    "datetime.date.today": FunctionRow(Does.CALENDAR),
    "time.strftime": FunctionRow(Does.CALENDAR, 1, "t"),
    **_all(Does.CALENDAR, _of("time", "ctime asctime localtime gmtime"), position=0),
    **_all(Does.SEED, ["torch.manual_seed", "torch.cuda.manual_seed_all"], position=0, keyword="seed"),
    "random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "a"),
    "numpy.random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "seed"),
    **_all(Does.SEED_BY_SYSTEM, ["torch.seed", *_of("torch.cuda", "seed seed_all")]),
    **_all(Does.MAKE_STREAM, _of("numpy.random", "default_rng RandomState SeedSequence"), position=0, keyword="seed"),
    "random.Random": FunctionRow(Does.MAKE_STREAM, 0, "x"),
    "torch.utils.data.DataLoader": FunctionRow(Does.LOAD_BATCHES),
    **_all(Does.WRAP, ["torch.nn.DataParallel", *_of("torch.nn.parallel", "data_parallel replicate parallel_apply scatter gather")]),
    **_all(Does.DISTRIBUTE, [
        "torch.distributed.init_process_group", "torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel",
        "apex.parallel.DistributedDataParallel", "horovod.torch.init", "accelerate.Accelerator", "deepspeed.initialize",
        *_of("pytorch_lightning", "Trainer"), *_of("lightning", "Trainer Fabric pytorch.Trainer"),
    ]),
    **_all(Does.HAND_OVER, [
        *_of("torch.multiprocessing", "spawn start_processes"), *_of("os", "fork _exit"), *_of("multiprocessing", "Process"),
        "threading.Thread", "concurrent.futures.ThreadPoolExecutor", "multiprocessing.pool.ThreadPool",
    ]),
    **_all(Does.KEEP_STORE, [
        "numpy.memmap", "shelve.open", "dbm.open", "sqlite3.connect", "lmdb.open", "tables.open_file", "zarr.open", "os.open",
        "pandas.HDFStore", "tempfile.mkstemp", "tempfile.NamedTemporaryFile", "subprocess.Popen",
    ]),
    **_all(Does.ASK_PERSON, ["pdb.set_trace", "builtins.breakpoint", "ipdb.set_trace", "IPython.embed"]),
    **_all(Does.COPY_BY_HAND, [
        *_of("torch.nn.parallel._functions", "Broadcast.apply ReduceAddCoalesced.apply"),
        *_of("torch.cuda.comm", "broadcast broadcast_coalesced scatter gather reduce_add reduce_add_coalesced"),
    ]),
    "torch.cuda.device_count": FunctionRow(Does.COUNT_DEVICES),
    "torch.cuda.set_device": FunctionRow(Does.SET_DEVICE, 0, "device"),
    "torch.device": FunctionRow(Does.MAKE_DEVICE, 0, "device"),
    "torch.cuda.device": FunctionRow(Does.MAKE_DEVICE, 0, "device"),
    **_all(Does.DEVICE_STATES, _of("torch.cuda", "get_rng_state_all set_rng_state_all")),
    "signal.signal": FunctionRow(Does.HANDLE_SIGNAL, 1, "handler"),
    "hydra.main": FunctionRow(Does.NAME_BY_CLOCK),
}  # fmt: skip

# Libraries that report a run: what they do, rank 0 does.
TRACKING = ("wandb", "mlflow", "clearml", "comet_ml", "aim", "neptune", "swanlab")


def what_is(name: str | None) -> FunctionRow | None:
    """What is known of a function, by its canonical name."""
    return ROWS.get(name) if name else None


def does(name: str | None) -> Does | None:
    row = what_is(name)
    return row.does if row else None


def knows(name: str) -> bool:
    """Whether a name is one that the tables have, for `from library import *`."""
    return name in ROWS or name in SPELLINGS
