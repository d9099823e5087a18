"""Libraries that wrap models in DataParallel by themselves: which use of them is one, and which is none."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.looks.hidden_wraps import hidden_wraps, shows_one_gpu
from tests.codemod.programs import program

HIDDEN = {
    "from transformers import Trainer\nTrainer(model).train()": ("transformers.Trainer", 2),
    "import transformers\ntransformers.trainer.Trainer(model)": ("transformers.Trainer", 2),
    "from transformers import Seq2SeqTrainer as T\ndef main():\n    T(model)\nmain()": (
        "transformers.Trainer",
        3,
    ),
    "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine(model)": (
        "transformers.Trainer",
        4,
    ),
    "from trl import SFTTrainer\nclass A(SFTTrainer): pass\nclass B(A): pass\nB(model)": ("trl", 4),
    "from trl.experimental.gkd import GKDTrainer\nGKDTrainer(model)": ("trl", 2),
    "import transformers as t\nmake = t.Trainer if x else other\nmake(model)": ("transformers.Trainer", 2),
    "from sentence_transformers import SentenceTransformer\nm = SentenceTransformer(n)\nm.fit(o)": (
        "sentence-transformers",
        3,
    ),
    'from lightning.fabric import Fabric\nFabric(devices=2, strategy="dp")': ("Lightning Fabric", 2),
    'import lightning as L\nhow = "dp"\nL.Fabric(strategy=how)': ("Lightning Fabric", 3),
    'import pytorch_lightning as pl\npl.Trainer(gpus=2, accelerator="dp")': ("Lightning", 2),
    "import pytorch_lightning as pl\nfrom pytorch_lightning.strategies import DataParallelStrategy\n"
    "pl.Trainer(strategy=DataParallelStrategy())": ("Lightning", 3),
    "import ignite.distributed as idist\nmodel = idist.auto_model(model)": ("ignite", 2),
    "from fastai.vision.all import *\nlearn = vision_learner(dls).to_fp16()\nlearn.to_parallel()": (
        "fastai",
        3,
    ),
    "from fastai.basics import Learner\nfrom fastai.distributed import *\nlearn = Learner(dls)\n"
    "with learn.parallel_ctx():\n    learn.fit(1)": ("fastai", 4),
}
PLAIN = (
    "from transformers import Trainer, AutoModel\nAutoModel.from_pretrained(name)",
    "from transformers import Trainer\nclass Mine(Trainer): pass",  # nothing makes one
    "from transformers import Trainer\ndef show(trainer: Trainer):\n    print(isinstance(trainer, Trainer))\nshow(None)",
    "from transformers import Trainer\ndef unused():\n    Trainer(model)",
    "from transformers import TrainerCallback, TrainingArguments\nTrainerCallback()\nTrainingArguments()",
    "from own import Trainer\nTrainer(model)",
    "from sentence_transformers import SentenceTransformer\nfrom sklearn.svm import SVC\n"
    "x = SentenceTransformer(n).encode(t)\nSVC().fit(x, y)",
    'from lightning.fabric import Fabric\nFabric(strategy="ddp")\nFabric()',
    "import lightning as L\nL.Trainer(devices=2).fit(model)",
    "import fastai\nprint(tensor.to_parallel())",
)


@pytest.mark.parametrize("script", HIDDEN)
def test_the_use_of_a_library_that_wraps_is_seen(script: str) -> None:
    (wrap,) = hidden_wraps(program(script))

    assert (wrap.library.name, wrap.node.lineno) == HIDDEN[script]


@pytest.mark.parametrize("script", PLAIN)
def test_what_wraps_nothing_is_not(script: str) -> None:
    assert not hidden_wraps(program(script))


def test_a_class_is_followed_from_file_to_file() -> None:
    script = "from trainers import Mine\nMine(model).train()"
    module = "import transformers\nclass Mine(transformers.Trainer):\n    pass\n"

    (wrap,) = hidden_wraps(program(script, trainers=module))

    assert wrap.own_class is not None and wrap.own_class[1].name == "Mine"


def test_one_visible_gpu_is_seen() -> None:
    line = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "{}"\n'

    assert [shows_one_gpu(program(line.format(devices))) for devices in ("0", "0,1", "")] == [
        True,
        False,
        True,
    ]
    assert not shows_one_gpu(program("import os\n"))
