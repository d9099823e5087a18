"""What functions of libraries do: one row a function, by its canonical name. test_knowledge.py holds each against its library."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.knowledge.names import SPELLINGS
from dp2ddp.codemod.knowledge.reading_methods import of, words


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
    WRAP = auto()  # DataParallel, and its parts as functions
    DISTRIBUTE = auto()  # sets up a distributed mode of the script's own
    KEEP_STORE = auto()  # opens a store that one process alone may write
    START_PROGRAM = auto()  # and goes on while it runs
    START_TRAINING = auto()  # calls the script, not the script it
    ASK_PERSON = auto()  # waits for one
    COPY_BY_HAND = auto()  # between devices
    COUNT_DEVICES = auto()
    SET_DEVICE = auto()
    MAKE_DEVICE = auto()
    HANDLE_SIGNAL = auto()
    NAME_BY_CLOCK = auto()  # hydra's folders
    BY_NAME = auto()  # loaders, states of devices, threads and processes: rules know them one by one


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
        *of("os", "makedirs mkdir remove unlink rmdir removedirs rename renames replace symlink link truncate ftruncate fsync fdatasync"),
        *of("os", "chmod chown utime mkfifo mknod"),
        *of("shutil", "rmtree copy copy2 copyfile copytree copymode copystat move make_archive unpack_archive chown"),
        *of("numpy", "save savez savez_compressed savetxt"), *of("matplotlib.pyplot", "savefig imsave"),
        *of("torch", "onnx.export jit.save export.save hub.download_url_to_file distributed.checkpoint.save distributed.checkpoint.save_state_dict"),
        *of("imageio", "imwrite imsave mimsave mimwrite volwrite"), *of("imageio.v2", "imwrite imsave mimsave mimwrite volwrite"),
        *of("imageio.v3", "imwrite"), *of("skimage.io", "imsave"), *of("tifffile", "imwrite imsave"), *of("cv2", "imwrite imwritemulti"),
        *of("scipy", "misc.imsave io.savemat io.mmwrite io.wavfile.write sparse.save_npz"),
        *of("torchvision", "utils.save_image io.write_png io.write_jpeg io.write_video io.write_file"),
        *of("soundfile", "write"), *of("torchaudio", "save"), *of("librosa.output", "write_wav"), *of("nibabel", "save"),
        *of("SimpleITK", "WriteImage"), *of("joblib", "dump"), *of("sklearn.externals.joblib", "dump"), *of("faiss", "write_index"),
        *of("safetensors", "torch.save_file torch.save_model numpy.save_file"), *of("onnx", "save save_model"),
        *of("omegaconf.OmegaConf", "save"), *of("zarr", "save save_array save_group copy_all"),
        *of("pyarrow", "parquet.write_table parquet.write_to_dataset feather.write_feather csv.write_csv"),
        *of("open3d.io", "write_point_cloud write_triangle_mesh"), *of("trimesh.exchange.export", "export_mesh"),
        *of("logging.config", "dictConfig fileConfig"), *of("pathlib.Path", "mkdir"), *of("distutils.dir_util", "mkpath"),
        *of("urllib.request", "urlretrieve"), *of("urllib", "urlretrieve"), *of("gdown", "download"), *of("wget", "download"),
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
        *of("json", "dump"), *of("pickle", "dump"), *of("marshal", "dump"), *of("plistlib", "dump"), *of("ast", "dump"),
        *of("yaml", "dump safe_dump dump_all safe_dump_all"), *of("torch.export", "export"), *of("torch.autograd.graph", "save_on_cpu"),
        *of("simplejson", "dump"), *of("ujson", "dump"), *of("cPickle", "dump"), *of("dill", "dump"), *of("cloudpickle", "dump"),
        *of("msgpack", "dump"), *of("toml", "dump"), *of("tomli_w", "dump"), *of("traceback", "print_exc"), *of("tqdm.tqdm", "write"),
    ]),
    "tempfile.TemporaryDirectory": FunctionRow(Does.FOLDER),
}  # fmt: skip

_STORES = {
    "numpy.memmap": FunctionRow(Does.KEEP_STORE, 2, "mode", usual="r+", harmless="r|c|readonly|copyonwrite"),
    "numpy.lib.format.open_memmap": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="r+", harmless="r|c"),
    "numpy.load": FunctionRow(Does.KEEP_STORE, 1, "mmap_mode", usual="None", harmless="None|r|c"),
    "torch.from_file": FunctionRow(Does.KEEP_STORE, 1, "shared", usual="None", harmless="None|False"),
    "shelve.open": FunctionRow(Does.KEEP_STORE, 1, "flag", usual="c", harmless="r"),
    **_all(Does.KEEP_STORE, of("dbm", "open dumb.open gnu.open ndbm.open"), position=1, usual="r", harmless="r"),
    "sqlite3.connect": FunctionRow(Does.KEEP_STORE, 0, "database", harmless=r":memory:|.*mode=(ro|memory)\b.*", changed_by=SQL_CHANGES),
    "lmdb.open": FunctionRow(Does.KEEP_STORE, None, "readonly", usual="False", harmless="True",
                             changed_by=LMDB_CHANGES),
    "h5py.File": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="r", harmless="r"),
    **_all(Does.KEEP_STORE, ["tables.open_file", "netCDF4.Dataset"], position=1, keyword="mode", usual="r", harmless="r"),
    "pandas.HDFStore": FunctionRow(Does.KEEP_STORE, 1, "mode", usual="a", harmless="r"),
    **_all(Does.KEEP_STORE, of("zarr", "open open_group open_array"), keyword="mode", harmless="r"),
    **_all(Does.KEEP_STORE, of("zarr", "group create")),
    "os.open": FunctionRow(Does.KEEP_STORE, 1, "flags", harmless=r"os\.O_RDONLY( \| os\.O_(CLOEXEC|DIRECTORY|NOFOLLOW|BINARY))*"),
    # One that is found by its name, or stays, is written by rank 0 alone and read by all.
    "tempfile.NamedTemporaryFile": FunctionRow(Does.KEEP_STORE, harmless="(?!)", changed_by=r"\.name\b|\bdelete\s*="),
    **_all(Does.KEEP_STORE, of("fileinput", "input FileInput"), position=1, keyword="inplace", usual="False", harmless="False"),
    "argparse.FileType": FunctionRow(Does.KEEP_STORE, 0, "mode", usual="r", harmless=READS),
    "tempfile.mkstemp": FunctionRow(Does.KEEP_STORE),
}  # fmt: skip

_OUTSIDE = {
    **_all(Does.ANSWER, [
        "os.system", *of("subprocess", "run call check_call check_output getoutput getstatusoutput"),
        *of("tempfile", "mkdtemp mktemp"), *of("builtins", "input"), *of("getpass", "getpass"), *of("sys.stdin", "read readline readlines"),
        *of("os", "urandom getrandom"), *of("uuid", "uuid1 uuid4"), *of("secrets", "token_hex token_bytes token_urlsafe randbelow randbits choice"),
        *of("requests", "request post put patch delete"),  # messages that somebody gets
    ]),
    **_all(Does.DIFFER, [
        *of("os", "getpid getppid getloadavg statvfs times"), *of("shutil", "disk_usage"), *of("resource", "getrusage"),
        *of("socket", "gethostname getfqdn"), *of("platform", "node"), *of("threading", "get_native_id"),
        *of("torch.cuda", "memory_allocated max_memory_allocated memory_reserved max_memory_reserved mem_get_info utilization"),
        *of("psutil", "virtual_memory swap_memory disk_usage cpu_percent getloadavg"),
    ]),
    **_all(Does.DOWNLOAD, [
        *of("torch.hub", "load load_state_dict_from_url"), *of("torch.utils.model_zoo", "load_url"),
        *of("torchvision.datasets.utils", "download_url download_and_extract_archive"), *of("nltk", "download"),
        *of("datasets", "load_dataset"), *of("huggingface_hub", "hf_hub_download snapshot_download"),
    ]),
    **_all(Does.TRACK, [
        *of("torch.utils.tensorboard", "SummaryWriter FileWriter"), *of("tensorboardX", "SummaryWriter"), *of("visdom", "Visdom"),
        *of("cv2", "VideoWriter"), *of("imageio", "get_writer"), *of("pandas", "ExcelWriter"), *of("pyarrow.parquet", "ParquetWriter"),
        *of("matplotlib.backends.backend_pdf", "PdfPages"), *of("torch", "package.PackageExporter profiler.tensorboard_trace_handler"),
        *of("loguru.logger", "configure"), *of("smtplib", "SMTP SMTP_SSL"),
    ]),
    "loguru.logger.add": FunctionRow(Does.TRACK, 0, "sink", harmless=r"sys\.(stdout|stderr)"),
    **_all(Does.HANDLE_LOG, ["logging.FileHandler", *of("logging.handlers", "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler")]),
    **_all(Does.CLOCK, [
        *of("time", "time perf_counter monotonic process_time thread_time clock time_ns perf_counter_ns monotonic_ns process_time_ns thread_time_ns"),
        *of("timeit", "default_timer"), *of("datetime.datetime", "now utcnow today"), *of("pandas.Timestamp", "now utcnow today"),
    ]),
    "datetime.date.today": FunctionRow(Does.CALENDAR),
    "time.strftime": FunctionRow(Does.CALENDAR, 1),
    **_all(Does.CALENDAR, of("time", "ctime asctime localtime gmtime"), position=0),
    **_all(Does.BY_NAME, [
        "torch.utils.data.DataLoader", *of("torch.cuda", "get_rng_state_all set_rng_state_all"),
        *of("torch.multiprocessing", "spawn start_processes"), *of("os", "fork forkpty _exit abort kill"), *of("multiprocessing", "Process"),
        *of("threading", "Thread Timer"), *of("concurrent.futures", "ThreadPoolExecutor"), *of("multiprocessing.pool", "ThreadPool"),
        *of("multiprocessing.dummy", "Pool"),
    ]),
    "subprocess.Popen": FunctionRow(Does.START_PROGRAM),
    "os.popen": FunctionRow(Does.START_PROGRAM, 0, "cmd", harmless="stty size"),  # all ranks have one terminal
    **_all(Does.START_TRAINING, ["wandb.agent", "swanlab.agent", "mlflow.projects.run"]),
    **_all(Does.ASK_PERSON, [
        *of("pdb", "set_trace post_mortem"), "builtins.breakpoint", "ipdb.set_trace", "pudb.set_trace", "code.interact", "IPython.embed",
    ]),
    "signal.signal": FunctionRow(Does.HANDLE_SIGNAL, 1),
    "hydra.main": FunctionRow(Does.NAME_BY_CLOCK),
}  # fmt: skip

_RANDOM = {
    **_all(Does.SEED, ["torch.manual_seed", "torch.cuda.manual_seed_all"], position=0, keyword="seed"),
    "random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "a"),
    "numpy.random.seed": FunctionRow(Does.SEED_BY_SYSTEM, 0, "seed"),
    **_all(Does.SEED_BY_SYSTEM, ["torch.seed", *of("torch.cuda", "seed seed_all")]),
    **_all(Does.MAKE_STREAM, of("numpy.random", "default_rng RandomState MT19937 PCG64 PCG64DXSM Philox SFC64"), position=0, keyword="seed"),
    "numpy.random.SeedSequence": FunctionRow(Does.MAKE_STREAM, 0, "entropy"),
    "random.Random": FunctionRow(Does.MAKE_STREAM, 0, "x"),
    **_all(Does.DRAW_BY_SYSTEM, ["random.SystemRandom", "secrets.SystemRandom"]),
    **_all(Does.DRAW, [
        *of("random", "random uniform randint randrange choice choices sample shuffle getrandbits randbytes triangular betavariate"),
        *of("random", "expovariate gammavariate gauss lognormvariate normalvariate paretovariate vonmisesvariate weibullvariate"),
        *of("numpy.random", "rand randn randint random random_sample ranf sample random_integers choice shuffle permutation bytes uniform"),
        *of("numpy.random", "normal standard_normal beta binomial chisquare dirichlet exponential f gamma geometric gumbel hypergeometric"),
        *of("numpy.random", "laplace logistic lognormal logseries multinomial multivariate_normal negative_binomial noncentral_chisquare"),
        *of("numpy.random", "noncentral_f pareto poisson power rayleigh standard_cauchy standard_exponential standard_gamma standard_t"),
        *of("numpy.random", "triangular vonmises wald weibull zipf"),
        *of("torch", "rand randn randint randperm normal rand_like randn_like randint_like bernoulli multinomial poisson binomial"),
        *of("torch", "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout"),
        *of("torch", "feature_alpha_dropout_ native_dropout rrelu rrelu_"),
        *of("torch.nn.functional", "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout gumbel_softmax rrelu rrelu_"),
        *of("torch.nn.functional", "fractional_max_pool2d fractional_max_pool3d scaled_dot_product_attention"),
        *of("torch.nn.functional", "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices"),
        *of("torch.nn.init", "normal_ uniform_ trunc_normal_ orthogonal_ sparse_ kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_"),
    ]),
}  # fmt: skip

_DEVICES = {
    **_all(Does.WRAP, [
        *CLASSES, *of("torch.nn.parallel", "data_parallel replicate parallel_apply scatter gather scatter_kwargs"),
        *of("torch.nn.parallel._functions", "Broadcast.apply ReduceAddCoalesced.apply Scatter.apply"),
    ]),
    **_all(Does.DISTRIBUTE, [
        *of("torch.distributed", "init_process_group fsdp.FullyShardedDataParallel"), "torch.nn.parallel.DistributedDataParallel",
        "apex.parallel.DistributedDataParallel", "horovod.torch.init", "accelerate.Accelerator", "deepspeed.initialize",
        *of("pytorch_lightning", "Trainer"), *of("lightning", "Trainer Fabric pytorch.Trainer"),
    ]),
    **_all(Does.COPY_BY_HAND, [
        *of("torch.cuda.comm", "broadcast broadcast_coalesced scatter gather reduce_add reduce_add_coalesced"),
        "torch.nn.parallel._functions.Gather.apply",
    ]),
    "torch.cuda.device_count": FunctionRow(Does.COUNT_DEVICES),
    **_all(Does.SET_DEVICE, ["torch.cuda.set_device"], position=0, keyword="device"),
    **_all(Does.MAKE_DEVICE, ["torch.device", "torch.cuda.device"], position=0, keyword="device"),
}  # fmt: skip

ROWS: dict[str, FunctionRow] = {**_FILES, **_STORES, **_OUTSIDE, **_RANDOM, **_DEVICES}

# Libraries that report a run: what they do, rank 0 does.
TRACKING = words("wandb mlflow clearml trains comet_ml aim neptune swanlab tensorboard_logger")


def what_is(name: str | None) -> FunctionRow | None:
    """What is known of a function, by its canonical name."""
    return ROWS.get(name) if name else None


def does(name: str | None) -> Does | None:
    row = what_is(name)
    return row.does if row else None


def knows(name: str) -> bool:
    """Whether a name is one that the tables have, for `from library import *`."""
    return name in ROWS or name in SPELLINGS
