"""Libraries that wrap models in DataParallel by themselves: which use of them is one, and which is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.looks.hidden_wraps import hidden_wraps, shows_one_gpu
from dp2ddp.review.files import may_matter
from tests.codemod.programs import program, project
from tests.diffs import Script, cases

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
    'import pytorch_lightning as pl\nhow = dict(gpus=2, accelerator="dp")\npl.Trainer(**how)': (
        "Lightning",
        3,
    ),
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
    "from transformers import Trainer\ndef show(it: Trainer):\n    print(isinstance(it, Trainer))\nshow(0)",
    "from transformers import Trainer\ndef unused():\n    Trainer(model)",
    "from transformers import TrainerCallback, TrainingArguments\nTrainerCallback()\nTrainingArguments()",
    "from own import Trainer\nTrainer(model)",
    "from sentence_transformers import SentenceTransformer\nfrom sklearn.svm import SVC\n"
    "x = SentenceTransformer(n).encode(t)\nSVC().fit(x, y)",
    'from lightning.fabric import Fabric\nFabric(strategy="ddp")\nFabric()',
    "import lightning as L\nL.Trainer(devices=2).fit(model)",
    "import fastai\nprint(tensor.to_parallel())",
)


@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
@pytest.mark.parametrize("script", HIDDEN)
def test_check_reads_such_a_file(tmp_path: Path, script: str, name: str) -> None:
    """Its search of bytes knows what the table knows."""
    path = tmp_path / name
    path.write_text(json.dumps(script.splitlines(keepends=True)) if name.endswith(".ipynb") else script)
    assert may_matter(str(path))


def test_check_passes_over_words_of_libraries_that_are_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "help.py"
    path.write_text('"""Of transformers: Trainer(model).fit(x)."""\nmodel.fit(x)\n')
    assert not may_matter(str(path))


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

    assert wrap.own_class
    assert wrap.own_class[1].name == "Mine"


def test_one_visible_gpu_is_seen() -> None:
    line = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "{}"\n'

    assert [shows_one_gpu(program(line.format(devices))) for devices in ("0", "0,1", "")] == [
        True,
        False,
        True,
    ]
    assert not shows_one_gpu(program("import os\n"))


FOLDER = Path(__file__).parent / "around"
AROUND = (FOLDER / "bases" / "trainer.py").read_text()


def lines_of(text: str) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """The new lines of a script, without its imports; the codes of its hazards; its notes."""
    conversion = convert(project(text))
    before = conversion.entry.before.text.splitlines()
    new = [
        each for each in conversion.entry.after.splitlines() if each not in before and " import " not in each
    ]
    return (
        new,
        tuple(each.code for each in conversion.hazards),
        tuple(each.because for each in conversion.notes),
    )


def test_what_is_around_the_library_is_converted_and_what_is_the_library_s_is_not() -> None:
    new, hazards, notes = lines_of(AROUND)

    assert [line for line in new if line] == [
        "wandb = library_on_rank0(wandb)",
        "join_ranks()",
        'run_on_rank0(os.makedirs, "plots")',
        'write_on_rank0(trainer.model.save_pretrained, "out/bare")',
    ]
    assert not hazards
    assert [each.partition(",")[0] for each in notes] == [
        "transformers.Trainer wraps the model by itself (from 2.9 on): started by python with several GPUs",
        "started by torchrun",
    ]


def test_a_tracker_that_rank_0_alone_uses_is_not_asked_by_the_others() -> None:
    text = AROUND
    held = text.replace("args.main", "wandb.config.x or args.main")

    assert (
        "wandb = HeldByRank0(wandb)"
        in lines_of(
            text.replace("args = ", "print(wandb.run.id)\nargs = ")
            .replace("trainer.is_w", "is_w")
            .replace("is_world_process_zero()", "True")
        )[0]
    )
    assert not any("wandb =" in each for each in lines_of(held)[0])


@pytest.mark.parametrize("script", cases(FOLDER / "cases.diff"), ids=lambda script: script.name)
def test_what_one_rank_does_stays_and_what_all_do_is_done_once(script: Script) -> None:
    new, _, _ = lines_of(script.body)
    done = [each.strip() for each in new if re.search(r"mkdir|open|save_state", each)]

    assert done == [text for name, text in script.said.items() if name == "done"]


ONE_GPU = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'
BOTH = "import torch\nfrom transformers import Trainer\nTrainer(torch.nn.DataParallel(model)).train()\nprint(1)\n"
FABRIC = 'import os\nfrom lightning.fabric import Fabric\nFabric(strategy="dp")\nos.mkdir("a")\n'


@pytest.mark.parametrize(("script", "hazards"), [(ONE_GPU + AROUND, ()), (FABRIC, ()), (BOTH, ("DDP208",))])
def test_where_torchrun_alone_does_not_do_nothing_is_joined(script: str, hazards: tuple[str, ...]) -> None:
    new, open_ones, notes = lines_of(script)

    assert "join_ranks()" not in new
    assert open_ones == hazards
    assert notes or hazards


def test_a_script_that_does_nothing_of_its_own_stays_as_it_is() -> None:
    script = "from transformers import Trainer\nTrainer(model).train()\n"

    assert not lines_of(script)[0]
    assert "join_ranks()" in lines_of(script + "print('done')\n")[0]


def test_what_was_converted_is_not_converted_again() -> None:
    converted = convert(project(AROUND)).entry.after

    assert not convert(project(converted)).changed
    assert not convert(project(converted.replace("dataloader_drop_last=True", ""))).hazards


@pytest.mark.parametrize(
    ("arguments", "is_hazard"),
    [
        ('TrainingArguments("out")', True),
        ('TrainingArguments("out", dataloader_drop_last=True)', False),
        ("parser.parse_args_into_dataclasses()[0]", True),
        ('TrainingArguments("out")\nargs.dataloader_drop_last = True', False),
    ],
)
def test_a_short_last_batch_is_a_hazard_unless_it_is_dropped(arguments: str, is_hazard: bool) -> None:
    script = "from transformers import Trainer, TrainingArguments\n"
    script += f"args = {arguments}\nTrainer(model, args=args).train()\n"

    assert lines_of(script)[1] == (("DDP305",) if is_hazard else ())
    assert not lines_of(script.replace(".train()", ".evaluate()"))[1]


TRAINS = "from transformers import Trainer, TrainingArguments\n{}\nTrainer(model, TrainingArguments('out', {}"
TRAINS += "dataloader_drop_last=True), train_dataset=data).train()\n"
LOSS = "from sentence_transformers.losses import {0}\nloss = {0}(model{1})"


@pytest.mark.parametrize(
    ("line", "argument", "hazards", "noted"),
    [
        ("", "", 0, False),
        ("", "label_smoothing_factor=0.1, ", 1, False),
        ("", "label_smoothing_factor=0.0, ", 0, False),
        ("", "average_tokens_across_devices=False, ", 1, False),
        ("", "average_tokens_across_devices=True, ", 0, False),
        ("", "bf16=True, fp16=False, ", 1, False),
        ("data = load(bf16=True)", "", 0, False),
        (LOSS.format("MultipleNegativesRankingLoss", ""), "", 1, False),
        (LOSS.format("MultipleNegativesRankingLoss", ", gather_across_devices=True"), "", 0, False),
        (LOSS.format("CosineSimilarityLoss", ""), "", 0, False),
        ("from datasets import load_dataset\ndata = load_dataset('a', streaming=True)", "", 1, False),
        ("from transformers import DataCollatorForLanguageModeling as C\nc = C(words)", "", 0, True),
        (
            "from transformers import DataCollatorForLanguageModeling as C\nc = C(words, mlm=False)",
            "",
            0,
            False,
        ),
        (
            "import torch\nclass D:\n    def __getitem__(self, i):\n        return torch.rand(2)\ndata = D()",
            "",
            0,
            True,
        ),
    ],
)
def test_what_trains_otherwise_on_ranks_is_said(line: str, argument: str, hazards: int, noted: bool) -> None:
    _, codes, notes = lines_of(TRAINS.format(line, argument))

    assert codes == ("DDP305",) * hazards
    assert any("rank by rank" in each for each in notes) == noted


@pytest.mark.parametrize(("given", "is_noted"), [('"auto"', True), ('{"": 0}', True), ("None", False)])
def test_a_model_that_is_placed_by_hand_is_noted(given: str, is_noted: bool) -> None:
    notes = lines_of(TRAINS.format(f"model = load(device_map={given})", ""))[2]

    assert any("device_map" in each for each in notes) == is_noted
