"""What functions do with a number that they are given: show it, compute with it, keep it. Data for the course of clocks."""

from dp2ddp.codemod.knowledge.functions import TRACKING


def _builtins(*words: str) -> tuple[str, ...]:
    return tuple(f"builtins.{word}" for word in words)


SHOWS = {  # methods of loggers, bars, trackers and open files: what rank 0 alone does
    *("info", "debug", "warning", "warn", "error", "critical", "exception", "log", "log_metric", "log_metrics"),
    *("log_value", "add_scalar", "add_scalars", "add_text", "scalar_summary", "set_description"),
    *("set_description_str", "set_postfix", "set_postfix_str", "write", "writelines", "writerow", "flush"),
}  # fmt: skip
LOGGERS = ("logging.", "loguru.", "tqdm.", "sys.stdout.", "sys.stderr.")
SHOWING = ("builtins.print", "time.sleep", "warnings.warn", *(f"{name}." for name in TRACKING))
ASKS = _builtins("isinstance", "type", "hasattr", "callable", "len", "id")  # about no number
COMPUTES = (
    *_builtins(
        "abs", "round", "int", "float", "str", "repr", "format", "min", "max", "sum", "divmod", "bool"
    ),
    *_builtins("list", "tuple", "dict", "sorted", "zip", "enumerate", "reversed"),
    *("math.", "numpy.", "statistics.", "datetime.", "time.", "collections.", "os.path.", "json.dumps"),
)
GIVES_BACK = {  # methods of texts, dates and dictionaries: they change nothing, and their answer has it
    *("format", "join", "strftime", "isoformat", "replace", "total_seconds", "timestamp", "ljust", "rjust"),
    *("split", "strip", "items", "values", "get", "startswith", "endswith"),
}  # fmt: skip
HOLDERS = (  # what these make only keeps what it is given
    *("builtins.list", "builtins.dict", "builtins.set", "collections.", "argparse.Namespace"),
    *("tqdm.", "progress.", "rich."),
)  # fmt: skip
UNSEEN = {  # methods that are called without being named
    *("__call__", "__enter__", "__iter__", "__next__", "__getitem__", "__getattr__", "__bool__", "__len__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__contains__"),
}  # fmt: skip
