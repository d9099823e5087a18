"""Which libraries are known: whatever of them writes files is in the table, or they write none."""

from __future__ import annotations

import sys

from dp2ddp.codemod.knowledge.function_rows import ROWS, TRACKING


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_WRITE_NOTHING = (
    *("PIL", "tqdm", "sklearn", "yaml", "easydict", "einops", "termcolor", "tabulate", "colorama", "packaging", "six"),
    *("requests", "psutil", "yacs", "typing_extensions", "attr", "seaborn", "albumentations", "kornia", "torchmetrics"),
    *("rich", "click", "absl", "progress", "prettytable", "networkx", "sympy", "setuptools", "pkg_resources", "__main__"),
    *("setproctitle", "prefetch_generator", "turbojpeg", "ninja", "tqdm_joblib", "pytz", "dateutil", "regex", "warmup_scheduler"),
)  # fmt: skip
_KNOWN = {*sys.stdlib_module_names, *_WRITE_NOTHING, *TRACKING, *(name.partition(".")[0] for name in ROWS)}

# By the names that they are imported by: where one of them is not installed here, it is still no file of the program.
# Any other import that is not found may be one, which nobody has read.
_NO_FILES = _names(
    "torch torchvision torchaudio torchtext torchmetrics torchsummary torchnet apex timm transformers",
    "tokenizers numpy scipy pandas sklearn skimage cv2 PIL matplotlib seaborn imageio h5py lmdb numba librosa",
    "soundfile tensorboard tensorboardX tensorboard_logger wandb mlflow visdom tensorflow tqdm progress",
    "progressbar blessings yaml yacs easydict omegaconf hydra docopt absl loguru termcolor colorama tabulate",
    "prettytable rich six natsort einops nltk spacy regex ftfy unidecode inflect pycocotools albumentations",
    "imgaug plyfile gdown requests dill json_tricks cPickle StringIO sets IPython ipdb gym accelerate",
    "lightning pytorch_lightning ignite elasticsearch pexpect chardet graphviz dominate accimage mc",
    "nested_dict",
)


def is_known_library(dotted: str) -> bool:
    return dotted.partition(".")[0] in _KNOWN


def may_be_local(name: str) -> bool:
    """Whether an import that is not found may be a file of the program; a known library need not be installed."""
    return name not in _NO_FILES
