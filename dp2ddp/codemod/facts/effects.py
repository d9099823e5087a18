"""What a script does to the world outside: files, folders, processes, trackers. One run did it once; so must W ranks.

SEMANTICS 73 to 79 and 100. The tables hold qualified names; methods are told by their names alone, so only names that
mean one thing are in them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.script import Call, Script, is_text, literal
from dp2ddp.codemod.facts.tables import of

OPENERS = ("builtins.open", "io.open")
OTHER_OPENERS = (
    "codecs.open",
    "gzip.open",
    "bz2.open",
    "lzma.open",
    "zipfile.ZipFile",
    "tarfile.open",
    "h5py.File",
)
FOLDERS_AND_FILES = {
    *of("os", "makedirs mkdir remove unlink rmdir removedirs rename renames replace symlink link"),
    *of("os", "truncate chmod utime mkfifo"),
    *of("shutil", "rmtree copy copy2 copyfile copytree move make_archive unpack_archive"),
}
PROCESSES = {"os.system", *of("subprocess", "run call check_call check_output getoutput")}
SAVERS = {  # functions of libraries that write a file
    *of("numpy", "save savez savez_compressed savetxt"),
    *of("matplotlib.pyplot", "savefig imsave"),
    *of("imageio", "imwrite imsave mimsave v2.imwrite v2.imsave v2.mimsave"),
    *of("torchvision", "utils.save_image io.write_png io.write_jpeg io.write_video"),
    *of("scipy", "misc.imsave io.savemat io.wavfile.write"),
    *of("torch", "onnx.export jit.save hub.download_url_to_file"),
    *("cv2.imwrite", "skimage.io.imsave", "soundfile.write", "librosa.output.write_wav", "torchaudio.save"),
    *("joblib.dump", "sklearn.externals.joblib.dump", "safetensors.torch.save_file"),
    *("urllib.request.urlretrieve", "gdown.download", "wget.download"),
}
SAVING_METHODS = {  # methods that write a file, whatever they belong to
    *("savefig", "to_csv", "to_excel", "to_pickle", "to_json", "to_parquet", "to_hdf"),
    *("write_text", "write_bytes", "save_pretrained", "extractall", "write_html", "write_image"),
    *("tofile", "export_chrome_trace", "export_stacks"),
}
PATH_METHODS = {"mkdir", "unlink", "rmdir", "touch", "rename", "replace", "symlink_to"}
TRACKERS = {
    *(
        "torch.utils.tensorboard.SummaryWriter",
        "tensorboardX.SummaryWriter",
        "tensorboardX.writer.SummaryWriter",
    ),
    *(
        "visdom.Visdom",
        "tensorboard_logger.Logger",
        "wandb.init",
        "comet_ml.Experiment",
        "neptune.init_run",
        "aim.Run",
        "cv2.VideoWriter",
        "imageio.get_writer",
    ),
}
TRACKER_CALLS = {
    *of("wandb", "log watch save finish alert login define_metric log_artifact"),
    *of(
        "mlflow",
        "start_run end_run log_metric log_metrics log_param log_params log_artifact pytorch.log_model",
    ),
    *of("mlflow", "set_experiment set_tracking_uri set_tag set_tags"),
    *of("tensorboard_logger", "configure log_value"),
    "loguru.logger.add",
}
TRACKER_STATE = ("wandb.config", "wandb.run")  # exist only where wandb.init ran
QUESTIONS = ("builtins.input", "getpass.getpass", "sys.stdin.read", "sys.stdin.readline")
DEBUGGERS = (
    *("pdb.set_trace", "ipdb.set_trace", "builtins.breakpoint", "IPython.embed", "pdb.post_mortem"),
    *("pudb.set_trace", "code.interact"),
)
EXITS = ("os._exit", "os.abort", "os.kill", "os.fork")
STARTERS = (
    *(
        "threading.Thread",
        "threading.Timer",
        "multiprocessing.Process",
        "multiprocessing.Pool",
        "torch.multiprocessing.Process",
    ),
    *(
        "torch.multiprocessing.Pool",
        "torch.multiprocessing.spawn",
        "multiprocessing.pool.ThreadPool",
        "multiprocessing.dummy.Pool",
    ),
    *("concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"),
)
# Files that are read back while they are written, in ways that only one process can.
READ_AND_WRITTEN = {  # where the mode stands, its keyword, and what is done where none is given
    "numpy.memmap": (2, "mode", ""),
    "numpy.lib.format.open_memmap": (1, "mode", ""),
    "shelve.open": (1, "flag", "c"),
    "dbm.open": (1, "flag", ""),
    "sqlite3.connect": (None, "mode", ""),
}
DESCRIPTORS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC")
TEMPORARY = ("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp")


@dataclass(frozen=True, eq=False)
class Effect:
    """A call that acts on the world outside."""

    call: Call
    kind: str  # open, opener, read and written, save, file, process, saver, tracker, tracker call, handler, log file


def find_effects(script: Script) -> tuple[Effect, ...]:
    found = ((call, _kind(script, call)) for call in script.calls)
    return tuple(Effect(call, kind) for call, kind in found if kind)


def _kind(script: Script, call: Call) -> str | None:
    name = call.name or ""
    if name in OPENERS:
        return "open" if writes(call.argument(1, "mode")) else None
    if name in OTHER_OPENERS:
        return "opener" if writes(call.argument(1, "mode")) else None
    if (
        name in READ_AND_WRITTEN
        and _is_written(script, call)
        or name == "os.open"
        and _describes_writing(call)
    ):
        return "read and written"
    if name == "tempfile.NamedTemporaryFile":  # one that is deleted at once is each rank's own
        delete = call.keyword("delete")
        return "opener" if delete and literal(delete.value) is False else None
    for kind, names in _TABLE:
        if name in names:
            return kind
    if name == "logging.basicConfig" and call.keyword("filename"):
        return "log file"
    return _kind_of_method(script, call)


def _is_written(script: Script, call: Call) -> bool:
    """A memory map or a shelf by its mode; a database, if anything is committed."""
    if call.name == "sqlite3.connect":
        return any(one.method == "commit" for one in script.calls)
    place, keyword, usual = READ_AND_WRITTEN[call.name or ""]
    mode = call.argument(place, keyword)
    text = usual if mode is None else literal(mode)
    letters = "w+" if "memmap" in (call.name or "") else "wcn"  # "c" is a copy, or makes a file
    return not isinstance(text, str) or any(letter in text for letter in letters)


def _describes_writing(call: Call) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr in DESCRIPTORS for one in ast.walk(call.node))


def _kind_of_method(script: Script, call: Call) -> str | None:
    """`frame.to_csv(...)`, `Path(...).mkdir()`: where the method is not one of the script's own classes."""
    if call.method is None or call.name is not None or _is_own(script, call):
        return None
    if call.method in SAVING_METHODS:
        return "file" if call.method.startswith("write_") else "saver"
    if call.method == "save" and is_file_name(script, call.argument(0)):
        return "saver"
    if call.method in PATH_METHODS and is_path(script, call):
        return "file"
    if call.method == "open" and writes(call.argument(0, "mode")) and _opens_path(script, call):
        return "path open"
    # importlib.import_module("tensorboardX").SummaryWriter(...)
    return "tracker" if call.method == "SummaryWriter" else None


def _is_own(script: Script, call: Call) -> bool:
    """A method of the script's own classes; what a wrapper holds (`net.module.save()`) is the user's, too."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    return call.method in script.own_methods or isinstance(owner, ast.Attribute) and owner.attr == "module"


def _opens_path(script: Script, call: Call) -> bool:
    """`path.open(mode)`: the object is a path, or else the first argument is nothing but a file mode."""
    mode = literal(call.argument(0, "mode"))
    is_mode = isinstance(mode, str) and re.fullmatch(r"[wax][bt]?\+?|[wax]\+[bt]?", mode) is not None
    return is_path(script, call) or is_mode


_TABLE: tuple[tuple[str, set[str] | tuple[str, ...]], ...] = (
    ("save", ("torch.save",)),
    ("file", {*FOLDERS_AND_FILES, "logging.config.dictConfig", "logging.config.fileConfig"}),
    ("process", PROCESSES),
    ("saver", SAVERS),
    ("tracker", TRACKERS),
    ("tracker call", TRACKER_CALLS),
    ("handler", ("logging.FileHandler",)),
    ("rotating", ("logging.handlers.RotatingFileHandler", "logging.handlers.TimedRotatingFileHandler")),
    ("temporary", TEMPORARY),
    ("background process", ("subprocess.Popen",)),
)


def writes(mode: ast.expr | None) -> bool:
    """Whether a file mode writes; a mode that cannot be read off might."""
    if mode is None:
        return False
    text = literal(mode)
    return not isinstance(text, str) or any(letter in text for letter in "wax+")


def is_file_name(script: Script, node: ast.expr | None) -> bool:
    """Whether an expression is a text, as far as it can be seen: `"a.png"`, `f"{i}.png"`, `os.path.join(...)`."""
    if isinstance(node, ast.Call) and script.scopes.name(node.func) == "os.path.join":
        return True
    return is_text(node)


def is_path(script: Script, call: Call) -> bool:
    """Whether the object of a method call is a pathlib.Path, as far as the text tells."""
    if not isinstance(call.node.func, ast.Attribute):
        return False
    owner = call.node.func.value
    if call.method in ("rename", "replace") or call.method == "open":
        return _makes_path(script, owner)
    return not isinstance(owner, ast.Call) or _makes_path(script, owner)


def _makes_path(script: Script, node: ast.AST | None, depth: int = 5) -> bool:
    """`Path(...)`, `Path(...) / "x"`, `path.parent`, or a name for one; `x = x.parent` is not followed for ever."""
    if depth == 0:
        return False
    match script.scopes.value(node):
        case ast.Call(func=func):
            chained = isinstance(func, ast.Attribute) and _makes_path(script, func.value, depth - 1)
            return chained or (script.scopes.name(func) or "").startswith("pathlib.")
        case ast.BinOp(left=left, op=ast.Div()):
            return _makes_path(script, left, depth - 1) or isinstance(left, (ast.Name, ast.Attribute))
        case ast.Attribute(attr="parent"):
            return True
    return False


def downloads(script: Script) -> Iterator[Call]:
    """Calls with `download=True`, or a download that depends: every rank would fetch at the same time."""
    for call in script.calls:
        keyword = call.keyword("download")
        if (
            keyword
            and literal(keyword.value) not in (False, None)
            or keyword
            and not isinstance(keyword.value, ast.Constant)
        ):
            yield call
