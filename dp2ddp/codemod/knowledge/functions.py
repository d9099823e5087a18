"""What functions of libraries do: one row a function, by its canonical name. test_knowledge.py holds each against its library."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.knowledge.names import SPELLINGS


class Does(Enum):
    """What a call does that processes cannot each do by themselves."""

    WRITE = auto()  # files or folders; what it returns is seldom of use
    SAVE = auto()  # torch.save
    OPEN = auto()  # a file, to write where the mode says so
    INTO_FILE = auto()  # writes into what is open already, or into memory: nothing to do
    ANSWER = auto()  # from the outside: what it returns differs from call to call
    DIFFER = auto()  # what it returns differs from process to process
    DOWNLOAD = auto()  # unless the file is there
    TRACK = auto()  # makes an object that writes, of which nothing is read
    HANDLE_LOG = auto()  # makes a logging handler that writes a file
    FOLDER = auto()  # makes a temporary folder that goes with the object
    CLOCK = auto()  # seconds
    CALENDAR = auto()  # the time of day, unless one is given
    SEED = auto()  # all of torch's streams
    SEED_BY_SYSTEM = auto()  # a stream of the process, from the operating system where no seed is given
    MAKE_STREAM = auto()  # a generator, seeded by the operating system where no seed is given
    DRAW = auto()  # from a stream that a script can seed
    DRAW_BY_SYSTEM = auto()  # makes a generator that nobody can seed
    LOAD_BATCHES = auto()
    WRAP = auto()  # DataParallel, and its parts as functions
    DISTRIBUTE = auto()  # sets up a distributed mode of the script's own
    HAND_OVER = auto()  # threads and processes that hand over in an order of their own; processes that end
    KEEP_STORE = auto()  # opens a store that one process alone may write
    START_PROGRAM = auto()  # and goes on while it runs
    START_TRAINING = auto()  # calls the script, not the script it
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
    """What one function does.

    `position` and `keyword` are those of the argument that decides (a mode, a seed, a time), `usual` is what is taken
    where it is not given. Where it says `harmless`, a regular expression, nothing is to be done. `changed_by` is what
    the program says somewhere if a store is written, whatever the mode allows.
    """

    does: Does
    position: int | None = None
    keyword: str | None = None
    usual: str = ""
    harmless: str = ""
    changed_by: str = ""


def _of(home: str, words: str) -> list[str]:
    return [f"{home}.{word}" for word in words.split()]


def _all(does: Does, names: Iterable[str], **given: object) -> dict[str, FunctionRow]:
    return {name: FunctionRow(does, **given) for name in names}  # type: ignore[arg-type]


READS = "r[btU]*"  # a mode that only reads
SQL_CHANGES = (
    r"(?i)\.commit\(|\.executescript\(|\bto_sql\(|\b(insert|replace)\s+(or\s+\w+\s+)?into\b|\bupdate\s+\w+\s+set\b"
    r"|\bdelete\s+from\b|\b(create|drop|alter)\s+((temp\w*|unique|virtual)\s+)?(table|index|view|trigger)\b"
)
LMDB_CHANGES = r"\bwrite\s*=(?!=|\s*False\b)|\.begin\([^()]*,[^()]*,|\.open_db\("  # whatever is put needs such a transaction

_FILES = {
    **_all(Does.WRITE, [
        *_of("os", "makedirs mkdir remove unlink rmdir removedirs rename renames replace symlink link truncate ftruncate fsync fdatasync"),
        *_of("os", "chmod chown utime mkfifo mknod"),
        *_of("shutil", "rmtree copy copy2 copyfile copytree copymode copystat move make_archive unpack_archive chown"),
        *_of("numpy", "save savez savez_compressed savetxt"), *_of("matplotlib.pyplot", "savefig imsave"),
        *_of("torch", "onnx.export jit.save export.save hub.download_url_to_file distributed.checkpoint.save distributed.checkpoint.save_state_dict"),
        *_of("imageio", "imwrite imsave mimsave mimwrite volwrite"), *_of("imageio.v2", "imwrite imsave mimsave mimwrite volwrite"),
        *_of("imageio.v3", "imwrite"), *_of("skimage.io", "imsave"), *_of("tifffile", "imwrite imsave"), *_of("cv2", "imwrite imwritemulti"),
        *_of("scipy", "misc.imsave io.savemat io.mmwrite io.wavfile.write sparse.save_npz"),
        *_of("torchvision", "utils.save_image io.write_png io.write_jpeg io.write_video io.write_file"),
        *_of("soundfile", "write"), *_of("torchaudio", "save"), *_of("librosa.output", "write_wav"), *_of("nibabel", "save"),
        *_of("SimpleITK", "WriteImage"), *_of("joblib", "dump"), *_of("sklearn.externals.joblib", "dump"), *_of("faiss", "write_index"),
        *_of("safetensors", "torch.save_file torch.save_model numpy.save_file"), *_of("onnx", "save save_model"),
        *_of("omegaconf.OmegaConf", "save"), *_of("zarr", "save save_array save_group copy_all"),
        *_of("pyarrow", "parquet.write_table parquet.write_to_dataset feather.write_feather csv.write_csv"),
        *_of("open3d.io", "write_point_cloud write_triangle_mesh"), *_of("trimesh.exchange.export", "export_mesh"),
        *_of("logging.config", "dictConfig fileConfig"), *_of("pathlib.Path", "mkdir"), *_of("distutils.dir_util", "mkpath"),
        *_of("urllib.request", "urlretrieve"), *_of("urllib", "urlretrieve"), *_of("gdown", "download"), *_of("wget", "download"),
    ]),
    "logging.basicConfig": FunctionRow(Does.WRITE, None, "filename", usual="None", harmless="None"),
    "loguru.logger.remove": FunctionRow(Does.WRITE, 0, "handler_id", usual="None", harmless="None"),  # by rank 0's number
    "os.write": FunctionRow(Does.WRITE, 0, "fd", harmless="(?!1$).*"),  # into a file that a rank has opened: opening is rank 0's
    "torch.save": FunctionRow(Does.SAVE, 1, "f"),
    **_all(Does.OPEN, ["builtins.open", "codecs.open", "io.FileIO", "bz2.BZ2File", "lzma.LZMAFile", "zipfile.ZipFile", "soundfile.SoundFile"],
           position=1, keyword="mode", usual="r", harmless=READS),
    **_all(Does.OPEN, ["gzip.open", "bz2.open", "lzma.open"], position=1, keyword="mode", usual="rb", harmless=READS),
    **_all(Does.OPEN, ["gzip.GzipFile", "wave.open"], position=1, keyword="mode", usual="None", harmless=f"None|{READS}"),
    "tarfile.open": FunctionRow(Does.OPEN, 1, "mode", usual="r", harmless=r"r([:|]\w*)?"),
    **_all(Does.INTO_FILE, [
        *_of("json", "dump"), *_of("pickle", "dump"), *_of("marshal", "dump"), *_of("plistlib", "dump"), *_of("ast", "dump"),
        *_of("yaml", "dump safe_dump dump_all safe_dump_all"), *_of("torch.export", "export"), *_of("torch.autograd.graph", "save_on_cpu"),
        *_of("simplejson", "dump"), *_of("ujson", "dump"), *_of("cPickle", "dump"), *_of("dill", "dump"), *_of("cloudpickle", "dump"),
        *_of("msgpack", "dump"), *_of("toml", "dump"), *_of("tomli_w", "dump"), *_of("traceback", "print_exc"), *_of("tqdm.tqdm", "write"),
    ]),
    "tempfile.TemporaryDirectory": FunctionRow(Does.FOLDER),
}  # fmt: skip

_STORES = {
    "numpy.memmap": FunctionRow(Does.KEEP_STORE, 2, "mode", usual="r+", harmless="r|c|readonly|copyonwrite"),
    "numpy.lib.format.open_memmap": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="r+", harmless="r|c"),
    "numpy.load": FunctionRow(Does.KEEP_STORE, 1, "mmap_mode", usual="None", harmless="None|r|c"),
    "torch.from_file": FunctionRow(Does.KEEP_STORE, 1, "shared", usual="None", harmless="None|False"),
    "shelve.open": FunctionRow(Does.KEEP_STORE, 1, "flag", usual="c", harmless="r"),
    **_all(Does.KEEP_STORE, _of("dbm", "open dumb.open gnu.open ndbm.open"), position=1, usual="r", harmless="r"),
    "sqlite3.connect": FunctionRow(Does.KEEP_STORE, 0, "database", harmless=r":memory:|.*mode=(ro|memory)\b.*", changed_by=SQL_CHANGES),
    "lmdb.open": FunctionRow(Does.KEEP_STORE, None, "readonly", usual="False", harmless="True",
                             changed_by=LMDB_CHANGES),
    "h5py.File": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="r", harmless="r"),
    **_all(Does.KEEP_STORE, ["tables.open_file", "netCDF4.Dataset"], position=1, keyword="mode", usual="r", harmless="r"),
    "pandas.HDFStore": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="a", harmless="r"),
    **_all(Does.KEEP_STORE, _of("zarr", "open open_group open_array"), keyword="mode", harmless="r"),
    **_all(Does.KEEP_STORE, _of("zarr", "group create")),
    "os.open": FunctionRow(Does.KEEP_STORE, 1, "flags", harmless=r"os\.O_RDONLY( \| os\.O_(CLOEXEC|DIRECTORY|NOFOLLOW|BINARY))*"),
    # One that is found by its name, or stays, is written by rank 0 alone and read by all.
    "tempfile.NamedTemporaryFile": FunctionRow(Does.KEEP_STORE, harmless="(?!)", changed_by=r"\.name\b|\bdelete\s*="),
    **_all(Does.KEEP_STORE, _of("fileinput", "input FileInput"), position=1, keyword="inplace", usual="False", harmless="False"),
    "argparse.FileType": FunctionRow(Does.KEEP_STORE, 0, "mode", usual="r", harmless=READS),
    "tempfile.mkstemp": FunctionRow(Does.KEEP_STORE),
}  # fmt: skip

_OUTSIDE = {
    **_all(Does.ANSWER, [
        "os.system", *_of("subprocess", "run call check_call check_output getoutput getstatusoutput"),
        *_of("tempfile", "mkdtemp mktemp"), *_of("builtins", "input"), *_of("getpass", "getpass"), *_of("sys.stdin", "read readline readlines"),
        *_of("os", "urandom getrandom"), *_of("uuid", "uuid1 uuid4"), *_of("secrets", "token_hex token_bytes token_urlsafe randbelow randbits choice"),
        *_of("requests", "request post put patch delete"),  # messages that somebody gets
    ]),
    **_all(Does.DIFFER, [
        *_of("os", "getpid getppid getloadavg statvfs times"), *_of("shutil", "disk_usage"), *_of("resource", "getrusage"),
        *_of("socket", "gethostname getfqdn"), *_of("platform", "node"), *_of("threading", "get_native_id"),
        *_of("torch.cuda", "memory_allocated max_memory_allocated memory_reserved max_memory_reserved mem_get_info utilization"),
        *_of("psutil", "virtual_memory swap_memory disk_usage cpu_percent getloadavg"),
    ]),
    **_all(Does.DOWNLOAD, [
        *_of("torch.hub", "load load_state_dict_from_url"), *_of("torch.utils.model_zoo", "load_url"),
        *_of("torchvision.datasets.utils", "download_url download_and_extract_archive"), *_of("nltk", "download"),
        *_of("datasets", "load_dataset"), *_of("huggingface_hub", "hf_hub_download snapshot_download"),
    ]),
    **_all(Does.TRACK, [
        *_of("torch.utils.tensorboard", "SummaryWriter FileWriter"), *_of("tensorboardX", "SummaryWriter"), *_of("visdom", "Visdom"),
        *_of("cv2", "VideoWriter"), *_of("imageio", "get_writer"), *_of("pandas", "ExcelWriter"), *_of("pyarrow.parquet", "ParquetWriter"),
        *_of("matplotlib.backends.backend_pdf", "PdfPages"), *_of("torch", "package.PackageExporter profiler.tensorboard_trace_handler"),
        *_of("loguru.logger", "configure"), *_of("smtplib", "SMTP SMTP_SSL"),
    ]),
    "loguru.logger.add": FunctionRow(Does.TRACK, 0, "sink", harmless=r"sys\.(stdout|stderr)"),
    **_all(Does.HANDLE_LOG, ["logging.FileHandler", *_of("logging.handlers", "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler")]),
    **_all(Does.CLOCK, [*_of("time", "time perf_counter monotonic process_time thread_time clock"), *_of("timeit", "default_timer")]),
    **_all(Does.CLOCK, _of("time", "time_ns perf_counter_ns monotonic_ns process_time_ns thread_time_ns")),
    **_all(Does.CLOCK, [*_of("datetime.datetime", "now utcnow today"), *_of("pandas.Timestamp", "now utcnow today")]),
    "datetime.date.today": FunctionRow(Does.CALENDAR),
    "time.strftime": FunctionRow(Does.CALENDAR, 1),
    **_all(Does.CALENDAR, _of("time", "ctime asctime localtime gmtime"), position=0),
    **_all(Does.HAND_OVER, [
        *_of("torch.multiprocessing", "spawn start_processes"), *_of("os", "fork forkpty _exit abort kill"), *_of("multiprocessing", "Process"),
        *_of("threading", "Thread Timer"), *_of("concurrent.futures", "ThreadPoolExecutor"), *_of("multiprocessing.pool", "ThreadPool"),
        *_of("multiprocessing.dummy", "Pool"),
    ]),
    "subprocess.Popen": FunctionRow(Does.START_PROGRAM),
    "os.popen": FunctionRow(Does.START_PROGRAM, 0, "cmd", harmless="stty size"),  # all ranks have one terminal
    **_all(Does.START_TRAINING, ["wandb.agent", "swanlab.agent", "mlflow.projects.run"]),
    **_all(Does.ASK_PERSON, [
        *_of("pdb", "set_trace post_mortem"), "builtins.breakpoint", "ipdb.set_trace", "pudb.set_trace", "code.interact", "IPython.embed",
    ]),
    "signal.signal": FunctionRow(Does.HANDLE_SIGNAL, 1),
    "hydra.main": FunctionRow(Does.NAME_BY_CLOCK),
}  # fmt: skip

_RANDOM = {
    **_all(Does.SEED, ["torch.manual_seed", "torch.cuda.manual_seed_all"], position=0, keyword="seed"),
    "random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "a"),
    "numpy.random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "seed"),
    **_all(Does.SEED_BY_SYSTEM, ["torch.seed", *_of("torch.cuda", "seed seed_all")]),
    **_all(Does.MAKE_STREAM, _of("numpy.random", "default_rng RandomState MT19937 PCG64 PCG64DXSM Philox SFC64"), position=0, keyword="seed"),
    "numpy.random.SeedSequence": FunctionRow(Does.MAKE_STREAM, 0, "entropy"),
    "random.Random": FunctionRow(Does.MAKE_STREAM, 0, "x"),
    **_all(Does.DRAW_BY_SYSTEM, ["random.SystemRandom", "secrets.SystemRandom"]),
    **_all(Does.DRAW, [
        *_of("random", "random uniform randint randrange choice choices sample shuffle getrandbits randbytes triangular betavariate"),
        *_of("random", "expovariate gammavariate gauss lognormvariate normalvariate paretovariate vonmisesvariate weibullvariate"),
        *_of("numpy.random", "rand randn randint random random_sample ranf sample random_integers choice shuffle permutation bytes uniform"),
        *_of("numpy.random", "normal standard_normal beta binomial chisquare dirichlet exponential f gamma geometric gumbel hypergeometric"),
        *_of("numpy.random", "laplace logistic lognormal logseries multinomial multivariate_normal negative_binomial noncentral_chisquare"),
        *_of("numpy.random", "noncentral_f pareto poisson power rayleigh standard_cauchy standard_exponential standard_gamma standard_t"),
        *_of("numpy.random", "triangular vonmises wald weibull zipf"),
        *_of("torch", "rand randn randint randperm normal rand_like randn_like randint_like bernoulli multinomial poisson binomial"),
        *_of("torch", "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout"),
        *_of("torch", "feature_alpha_dropout_ native_dropout rrelu rrelu_"),
        *_of("torch.nn.functional", "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout gumbel_softmax rrelu rrelu_"),
        *_of("torch.nn.functional", "fractional_max_pool2d fractional_max_pool3d scaled_dot_product_attention"),
        *_of("torch.nn.functional", "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices"),
        *_of("torch.nn.init", "normal_ uniform_ trunc_normal_ orthogonal_ sparse_ kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_"),
    ]),
}  # fmt: skip

_DEVICES = {
    "torch.utils.data.DataLoader": FunctionRow(Does.LOAD_BATCHES),
    **_all(Does.WRAP, [
        *CLASSES, *_of("torch.nn.parallel", "data_parallel replicate parallel_apply scatter gather scatter_kwargs"),
        *_of("torch.nn.parallel._functions", "Broadcast.apply ReduceAddCoalesced.apply Scatter.apply"),
    ]),
    **_all(Does.DISTRIBUTE, [
        *_of("torch.distributed", "init_process_group fsdp.FullyShardedDataParallel"), "torch.nn.parallel.DistributedDataParallel",
        "apex.parallel.DistributedDataParallel", "horovod.torch.init", "accelerate.Accelerator", "deepspeed.initialize",
        *_of("pytorch_lightning", "Trainer"), *_of("lightning", "Trainer Fabric pytorch.Trainer"),
    ]),
    **_all(Does.COPY_BY_HAND, [
        *_of("torch.cuda.comm", "broadcast broadcast_coalesced scatter gather reduce_add reduce_add_coalesced"),
        "torch.nn.parallel._functions.Gather.apply",
    ]),
    "torch.cuda.device_count": FunctionRow(Does.COUNT_DEVICES),
    **_all(Does.SET_DEVICE, ["torch.cuda.set_device"], position=0, keyword="device"),
    **_all(Does.MAKE_DEVICE, ["torch.device", "torch.cuda.device"], position=0, keyword="device"),
    **_all(Does.DEVICE_STATES, _of("torch.cuda", "get_rng_state_all set_rng_state_all")),
}  # fmt: skip

ROWS: dict[str, FunctionRow] = {**_FILES, **_STORES, **_OUTSIDE, **_RANDOM, **_DEVICES}

# Libraries that report a run: what they do, rank 0 does.
TRACKING = (
    *("wandb", "mlflow", "clearml", "trains", "comet_ml", "aim", "neptune", "swanlab", "tensorboard_logger"),
)


def what_is(name: str | None) -> FunctionRow | None:
    """What is known of a function, by its canonical name."""
    return ROWS.get(name) if name else None


def does(name: str | None) -> Does | None:
    row = what_is(name)
    return row.does if row else None


def knows(name: str) -> bool:
    """Whether a name is one that the tables have, for `from library import *`."""
    return name in ROWS or name in SPELLINGS
