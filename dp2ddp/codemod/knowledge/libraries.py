"""Which libraries are known: whatever of them writes files is in the table, or they write none."""

from __future__ import annotations

import sys

from dp2ddp.codemod.knowledge.function_rows import ROWS, TRACKING

_WRITE_NOTHING = (
    *("PIL", "tqdm", "sklearn", "yaml", "easydict", "einops", "termcolor", "tabulate", "colorama", "packaging", "six"),
    *("requests", "psutil", "yacs", "typing_extensions", "attr", "seaborn", "albumentations", "kornia", "torchmetrics"),
    *("rich", "click", "absl", "progress", "prettytable", "networkx", "sympy", "setuptools", "pkg_resources", "__main__"),
    *("setproctitle", "prefetch_generator", "turbojpeg", "ninja", "tqdm_joblib", "pytz", "dateutil", "regex", "warmup_scheduler"),
)  # fmt: skip
# By the names that they are imported by: what is imported from them is no file of a project.
_OTHERS = (
    *("torchtext", "torchsummary", "torchnet", "timm", "transformers", "tokenizers", "numba", "librosa", "soundfile"),
    *("tensorboard", "tensorboard_logger", "tensorflow", "progressbar", "blessings", "omegaconf", "hydra", "docopt"),
    *("loguru", "natsort", "spacy", "ftfy", "unidecode", "inflect", "pycocotools", "imgaug", "plyfile", "gdown", "dill"),
    *("json_tricks", "cPickle", "StringIO", "sets", "IPython", "ipdb", "gym", "ignite", "elasticsearch", "pexpect"),
    *("chardet", "graphviz", "dominate", "accimage", "mc", "nested_dict"),
)  # fmt: skip
_KNOWN = {*sys.stdlib_module_names, *_WRITE_NOTHING, *TRACKING, *(name.partition(".")[0] for name in ROWS)}


def is_known_library(dotted: str) -> bool:
    return dotted.partition(".")[0] in _KNOWN


def is_library(dotted: str) -> bool:
    """Whether a name is a library's, known or not; a file of a project is hardly called so."""
    return is_known_library(dotted) or dotted.partition(".")[0] in _OTHERS
