"""What functions do with a number that they are given: show it, compute with it, keep it. Data for the course of clocks."""

from dp2ddp.codemod.knowledge.functions import TRACKING
from dp2ddp.codemod.knowledge.reading_methods import homes, of, words

SHOWS = words(  # methods of loggers, bars, trackers and open files: what rank 0 alone does
    "info debug warning warn error critical exception log log_metric log_metrics log_value add_scalar add_scalars add_text",
    "scalar_summary set_description set_description_str set_postfix set_postfix_str write writelines writerow flush",
)
LOGGERS = homes("logging loguru tqdm sys.stdout sys.stderr")
SHOWING = ("builtins.print", "time.sleep", "warnings.warn", *(f"{name}." for name in TRACKING))
ASKS = of("builtins", "isinstance type hasattr callable len id")  # about no number
_COMPUTING = "abs round int float str repr format min max sum divmod bool list tuple dict sorted zip enumerate reversed"
COMPUTES = (
    *of("builtins", _COMPUTING),
    *homes("math numpy statistics datetime time collections os.path"),
    "json.dumps",
)
GIVES_BACK = words(  # methods of texts, dates and dictionaries: they change nothing, and their answer has it
    "format join strftime isoformat replace total_seconds timestamp ljust rjust split strip items values get",
    "startswith endswith",
)
# What these make only keeps what it is given.
HOLDERS = (*of("builtins", "list dict set"), *homes("collections tqdm progress rich"), "argparse.Namespace")
UNSEEN = words(  # methods that are called without being named
    "__call__ __enter__ __iter__ __next__ __getitem__ __getattr__ __bool__ __len__ __lt__ __le__ __gt__ __ge__",
    "__eq__ __contains__",
)
