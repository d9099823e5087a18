"""Which libraries are known: whatever of them writes files is in the table, or they write none."""

import sys

from dp2ddp.codemod.knowledge.functions import ROWS, TRACKING
from dp2ddp.codemod.knowledge.reading_methods import words

_WRITE_NOTHING = words(
    "__main__ absl accimage albumentations attr blessings chardet click colorama dateutil easydict einops ftfy",
    "inflect kornia natsort networkx ninja packaging PIL pkg_resources prefetch_generator prettytable progress",
    "progressbar psutil pytz regex requests rich seaborn setproctitle setuptools six sklearn sympy tabulate",
    "termcolor torchmetrics tqdm tqdm_joblib turbojpeg typing_extensions unidecode warmup_scheduler",
    "warpctc_pytorch yacs yaml",
)
_KNOWN = {*sys.stdlib_module_names, *TRACKING, *(name.partition(".")[0] for name in ROWS), *_WRITE_NOTHING}
# They may write what the table does not say. Where one of them is not installed here, it is still no file of the
# program; any other import that is not found may be one, which nobody has read.
_OTHERS = words(
    "docopt dominate elasticsearch graphviz gym ignite imgaug json_tricks mc nested_dict numba pexpect plyfile",
    "pycocotools sets spacy StringIO tensorboard tensorflow timm tokenizers torchnet torchsummary torchtext",
    "transformers",
)


def is_known_library(dotted: str) -> bool:
    return dotted.partition(".")[0] in _KNOWN


def may_be_local(name: str) -> bool:
    """Whether an import that is not found may be a file of the program; a known library need not be installed."""
    return name == "datasets" or name not in _KNOWN | _OTHERS  # a library's name, and many a folder's
