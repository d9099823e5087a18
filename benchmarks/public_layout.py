"""Lays out the programs of public_list.toml for its runs: made-up data, stand-ins, and the changes that it names.

`python benchmarks/public_layout.py CHECKOUTS OUT [NAME ...]` copies each entry's repository from CHECKOUTS (where each
is at its pin) to OUT, and changes the copies. `--stand-ins SITE` copies stand_ins/ into a folder site-packages, and
lets torchvision have its data sets from there. Then `public_list.py OUT --verify`. Needs Python 3.11.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy
import tomllib  # type: ignore[import-not-found]
from PIL import Image

SETTINGS = Path(__file__).with_name("public_list.toml")
STAND_INS = Path(__file__).with_name("stand_ins")
DRAWN = numpy.random.RandomState(0)

# What torch, numpy, PIL and Python have by other names today: in all files.
MODERN = (
    (r"\basync=True", "non_blocking=True"),
    (r"\.data\[0\](?![.\[])", ".item()"),
    (r"(correct\w*\[:k\])\.view\(", r"\1.reshape("),
    (r"\bnp\.(int|float|bool|object)\b", r"\1"),
    (r"\bimport cPickle as pickle", "import pickle"),
    (r"\bimport cPickle\b", "import pickle as cPickle"),
    (r"\bImage\.ANTIALIAS\b", "Image.LANCZOS"),
)

Layout = Callable[[Path], None]
LAYOUTS: dict[str, Layout] = {}


def main() -> None:
    arguments = sys.argv[1:]
    if "--stand-ins" in arguments:
        place = arguments.index("--stand-ins")
        write_stand_ins(Path(arguments[place + 1]))
        del arguments[place : place + 2]
    if len(arguments) < 2:
        return
    checkouts, out, names = Path(arguments[0]), Path(arguments[1]), arguments[2:]
    entries = [
        each
        for each in tomllib.loads(SETTINGS.read_text())["repository"]
        if not names or each["name"] in names
    ]
    for entry in entries:
        source = checkouts / entry["source"].split("/")[1]
        copy = out / source.name
        if not source.is_dir() or entry["name"] not in LAYOUTS:
            continue
        if not copy.exists() or names:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy, symlinks=True)
            modernise(copy)
        DRAWN.seed(0)
        LAYOUTS[entry["name"]](copy / entry.get("folder", "."))
        print(entry["name"])


def modernise(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        text = new = path.read_text(errors="surrogateescape")
        for pattern, replacement in MODERN:
            new = re.sub(pattern, replacement, new)
        if new != text:
            path.write_text(new, errors="surrogateescape")


def laid_out(name: str) -> Callable[[Layout], Layout]:
    def keep(layout: Layout) -> Layout:
        LAYOUTS[name] = layout
        return layout

    return keep


# ---- what layouts are made of


def change(path: Path, *changes: tuple[str, str]) -> None:
    """Each pattern must be there: a layout that changes nothing has lost its reason."""
    text = path.read_text()
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count, f"{path}: no {pattern}"
    path.write_text(text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def picture(path: Path, width: int, height: int, grey: int = 0) -> None:
    """Random pixels; `grey` values in one channel instead of three."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width) if grey else (height, width, 3)
    Image.fromarray(DRAWN.randint(0, grey or 256, shape).astype("uint8")).save(path)


def array(path: Path, values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        numpy.save(file, values)  # type: ignore[arg-type]


def sound(path: Path, samples: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, samples, "NONE", ""))
        file.writeframes(DRAWN.randint(-9000, 9000, samples).astype("int16").tobytes())


def nothing(folder: Path) -> None:
    """As it is."""


for as_it_is in (
    "wide-resnet.pytorch", "SupContrast", "CutMix-PyTorch", "examples/imagenet",
    "examples/dcgan", "AWP", "Random-Erasing", "pytorch_distributed_training",
    "DistributedLearning", "pytorch-multi-gpu-training",
):  # fmt: skip
    LAYOUTS[as_it_is] = nothing


# ---- the entries


@laid_out("pytorch-cifar")
def _(folder: Path) -> None:
    change(folder / "main.py", (r"^net = SimpleDLA\(\)", "net = LeNet()"))
    change(folder / "utils.py", (r"^_, term_width = .*", "term_width = 80"))


@laid_out("pytorch-classification")
def _(folder: Path) -> None:
    change(folder / "cifar.py", (r"(prec[15])\[0\]", r"\1.item()"))


@laid_out("mixup-cifar10")
def _(folder: Path) -> None:
    change(folder / "utils.py", (r"^_, term_width = .*", "term_width = 80"))


@laid_out("XNOR-Net-PyTorch")
def _(folder: Path) -> None:
    for part, count in (("train", 300), ("test", 120)):
        array(folder / f"data/{part}_data", DRAWN.randn(count, 3, 32, 32).astype("float32"))
        array(folder / f"data/{part}_labels", DRAWN.randint(0, 10, count))
    change(folder / "data.py", (r"_path, 'r'\)", "_path, 'rb')"))
    change(
        folder / "models/nin.py",
        (r"\b192\b|\b160\b|\b96\b", "16"),
        (
            r"    def (forward|backward)\(self, (input|grad_output, grad_output_mean)\):",
            r"    @staticmethod\n    def \1(self, \2):",
        ),
        (r"BinActive\(\)\(x\)", "BinActive.apply(x)"),
    )
    change(folder / "main.py", (r"in state\['state_dict'\]\.keys\(\)", "in list(state['state_dict'].keys())"))


@laid_out("wide-residual-networks")
def _(folder: Path) -> None:
    (folder / "sv").mkdir()


@laid_out("attention-transfer")
def _(folder: Path) -> None:
    (folder / "logs").mkdir()


@laid_out("WassersteinGAN")
def _(folder: Path) -> None:
    change(
        folder / "main.py",
        (r"data_iter\.next\(\)", "next(data_iter)"),
        (r"transforms\.Scale", "transforms.Resize"),
    )


@laid_out("BERT-pytorch")
def _(folder: Path) -> None:
    words = [f"w{number}" for number in range(30)]
    lines = ["\t".join(" ".join(DRAWN.choice(words, 6)) for _ in range(2)) for _ in range(64)]
    write(folder / "corpus.txt", "\n".join(lines) + "\n")
    write(
        folder / "run_bert.py",
        "from bert_pytorch.__main__ import train\n\nif __name__ == '__main__':\n    train()\n",
    )
    sys.path.insert(0, str(folder))
    vocabulary = importlib.import_module("bert_pytorch.dataset").WordVocab
    with open(folder / "corpus.txt") as corpus:
        vocabulary(corpus, max_size=None, min_freq=1).save_vocab(str(folder / "vocab.small"))
    sys.path.pop(0)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)


@laid_out("pytorch-template")
def _(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    settings["n_gpu"] = 2
    settings["data_loader"]["args"]["batch_size"] = 16
    settings["trainer"]["epochs"] = 2
    write(folder / "c.json", json.dumps(settings, indent=4))
    change(
        folder / "utils/util.py",
        (r"self\._data\[col\]\.values\[:\] = 0", "self._data[col] = 0.0"),
        (r"self\._data\.(total|counts|average)\[key\]", r"self._data.loc[key, '\1']"),
    )


def clouds(folder: Path) -> None:
    import h5py  # type: ignore[import-not-found]

    for part, count in (("train", 20), ("test", 8)):
        path = folder / f"data/modelnet40_ply_hdf5_2048/ply_data_{part}0.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["data"] = DRAWN.randn(count, 128, 3).astype("float32")
            file["label"] = DRAWN.randint(0, 40, (count, 1)).astype("uint8")


@laid_out("dgcnn")
def _(folder: Path) -> None:
    clouds(folder)


@laid_out("dgcnn.pytorch")
def _(folder: Path) -> None:
    clouds(folder)
    change(folder / "data.py", (r"h5py\.File\(h5_name, 'r\+'\)", "h5py.File(h5_name, 'r')"))


@laid_out("Knowledge-Distillation-Zoo")
def _(folder: Path) -> None:
    import torch

    write(folder / "kd_losses/kdsvd.py", "class KDSVD:\n    pass\n")
    change(folder / "kd_losses/bss.py", (r"^from torch\.autograd\.gradcheck import zero_gradients\n", ""))
    sys.path.insert(0, str(folder))
    make = importlib.import_module("network").define_tsnet
    torch.manual_seed(0)
    for name in ("initial_r20", "checkpoint"):
        path = folder / f"results/s/{name}.pth.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"net": make("resnet20", 10, cuda=False).state_dict()}, path)
    sys.path.pop(0)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)


@laid_out("mean-teacher")
def _(folder: Path) -> None:
    images = folder / "data-local/images/cifar/cifar10/by-image"
    labelled = []
    for part, count in (("train+val", 24), ("test", 8)):
        for number in range(count):
            kind = ("airplane", "cat", "dog")[number % 3]
            picture(images / part / kind / f"{number}.png", 32, 32)
            labelled += [f"{number}.png {kind}"] if part == "train+val" and number < 8 else []
    write(folder / "labels.txt", "\n".join(labelled) + "\n")
    change(folder / "mean_teacher/architectures.py", (r"channels=96,", "channels=8,"))


@laid_out("arcface-pytorch")
def _(folder: Path) -> None:
    names = [f"{number}.png" for number in range(8)]
    for name in names:
        picture(folder / "img" / name, 140, 140, grey=256)
        picture(folder / "img128" / name, 128, 128, grey=256)
    write(folder / "train.txt", "".join(f"{name} {place % 5}\n" for place, name in enumerate(names)))
    write(folder / "pairs.txt", "".join(f"{names[2 * n]} {names[2 * n + 1]} {n % 2}\n" for n in range(4)))
    change(
        folder / "config/config.py",
        (r"num_classes = .*", "num_classes = 5"), (r"train_root = .*", "train_root = 'img'"),
        (r"train_list = .*", "train_list = 'train.txt'"), (r"lfw_root = .*", "lfw_root = 'img128'"),
        (r"lfw_test_list = .*", "lfw_test_list = 'pairs.txt'"), (r"train_batch_size = \d+", "train_batch_size = 8"),
        (r"max_epoch = .*", "max_epoch = 2"), (r"num_workers = \d+", "num_workers = 2"),
        (r"print_freq = \d+", "print_freq = 1"), (r"test_batch_size = \d+", "test_batch_size = 4"),
    )  # fmt: skip
    for package in ("config", "data", "models", "utils"):
        change(folder / package / "__init__.py", (r"^from (\w+) import", r"from .\1 import"))
    (folder / "checkpoints").mkdir(exist_ok=True)


@laid_out("pix2pixHD")
def _(folder: Path) -> None:
    for number in range(8):
        picture(folder / f"ds/train_label/{number}.png", 64, 64, grey=5)
        picture(folder / f"ds/train_img/{number}.png", 64, 64)
    change(folder / "train.py", (r"^import fractions", "import math as fractions"))


@laid_out("SfmLearner-Pytorch")
def _(folder: Path) -> None:
    for scene in "abc":
        for number in range(6):
            picture(folder / f"kit/{scene}/{number:07}.jpg", 96, 64)
        write(folder / f"kit/{scene}/cam.txt", "60 0 48\n0 60 32\n0 0 1\n")
    write(folder / "kit/train.txt", "a\nb\n")
    write(folder / "kit/val.txt", "c\n")
    write(folder / "datasets/__init__.py", "")  # or a library of that name, Hugging Face's, hides the folder
    change(
        folder / "utils.py",
        (r"cm\.get_cmap\(", "pyplot.get_cmap("),
        (r"^from matplotlib import cm", "from matplotlib import pyplot"),
    )


@laid_out("PSMNet")
def _(folder: Path) -> None:
    def pair(images: str, disparities: str, name: str) -> None:
        for side in ("left", "right"):
            picture(folder / f"sf/{images}/{side}/{name}.png", 96, 64)
        path = folder / f"sf/{disparities}/left/{name}.pfm"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = DRAWN.uniform(0, 31, (64, 96)).astype("<f4")
        path.write_bytes(b"Pf\n96 64\n-1.0\n" + values.tobytes())

    for number in range(2):
        pair("monkaa_frames_cleanpass/x", "monkaa_disparity/x", f"{number:04}")
    for part in ("TRAIN", "TEST"):
        for letter in "ABC":
            pair(f"frames_cleanpass/{part}/{letter}/0", f"frames_disparity/{part}/{letter}/0", "0006")
    for focal in ("35mm_focallength", "15mm_focallength"):
        for scene in ("scene_backwards", "scene_forwards"):
            for speed in ("fast", "slow"):
                (folder / f"sf/driving_frames_cleanpass/{focal}/{scene}/{speed}/left").mkdir(parents=True)
                (folder / f"sf/driving_frames_cleanpass/{focal}/{scene}/{speed}/right").mkdir(parents=True)
    (folder / "sf/driving_disparity").mkdir()
    change(folder / "dataloader/SecenFlowLoader.py", (r"th, tw = 256, 512", "th, tw = 32, 64"))
    pools = [
        (rf"\(\({old}, {old}\), stride=\({old},{old}\)\)", f"({new})")
        for old, new in ((64, 8), (32, 4), (16, 2), (8, 1))
    ]
    change(folder / "models/submodule.py", *pools)
    change(folder / "models/basic.py", (r"self\.maxdisp/4", "self.maxdisp//4"))


@laid_out("ResNet_Imagenet_DP_DDP")
def _(folder: Path) -> None:
    for number in range(16):
        picture(folder / f"im/train/c{number % 4}/{number}.png", 64, 64)
    change(
        folder / "train_dp.py",
        (r"save_dir = '.*'", "save_dir = 'saved'"), (r"batch_size = 128", "batch_size = 8"),
        (r"transforms\.Resize\(256\)", "transforms.Resize(36)"),
        (r"transforms\.CenterCrop\(224\)", "transforms.CenterCrop(32)"),
    )  # fmt: skip
    (folder / "saved").mkdir()


@laid_out("Conv-TasNet")
def _(folder: Path) -> None:
    for kind in ("mix", "s1", "s2"):
        listed = []
        for number in range(8):
            samples = 3200 + 100 * number
            sound(folder / f"wav/{kind}/{number}.wav", samples)
            listed.append([f"wav/{kind}/{number}.wav", samples])
        write(folder / f"j/{kind}.json", json.dumps(listed))


@laid_out("semseg")
def _(folder: Path) -> None:
    for number in range(12):
        picture(folder / f"ds/{number}.png", 90, 80)
        picture(folder / f"ds/l{number}.png", 90, 80, grey=5)
    write(folder / "ds/train.txt", "".join(f"{n}.png l{n}.png\n" for n in range(8)))
    write(folder / "ds/val.txt", "".join(f"{n}.png l{n}.png\n" for n in range(8, 12)))
    (folder / "out").mkdir()
    text = (folder / "config/ade20k/ade20k_pspnet50.yaml").read_text()
    new = {
        "data_root": "ds", "train_list": "ds/train.txt", "val_list": "ds/val.txt", "classes": "5", "sync_bn": "False",
        "train_h": "57", "train_w": "57", "train_gpu": "[0, 1]", "workers": "2", "batch_size": "4",
        "batch_size_val": "2", "epochs": "2", "manual_seed": "1", "print_freq": "1", "save_path": "out",
        "evaluate": "True", "multiprocessing_distributed": "False",
    }  # fmt: skip
    for name, value in new.items():
        text = re.sub(rf"^  {name}:.*", f"  {name}: {value}", text, flags=re.MULTILINE)
    write(folder / "c.yaml", text)
    change(
        folder / "model/pspnet.py",
        (r"pretrained=True\):", "pretrained=False):"),
        (r"fea_dim = 2048", "fea_dim = 128"),
        (r"1024, 256", "64, 256"),
    )
    widths = ((r"block, 64,", "block, 4,"), (r"block, 128,", "block, 8,"), (r"block, 256,", "block, 16,"))
    change(folder / "model/resnet.py", *widths, (r"block, 512,", "block, 32,"), (r"Linear\(512", "Linear(32"))
    change(
        folder / "util/transform.py",
        (r"collections\.Iterable", "collections.abc.Iterable"),
        (r"^import collections", "import collections.abc"),
    )


@laid_out("deep-text-recognition-benchmark")
def _(folder: Path) -> None:
    import lmdb  # type: ignore[import-not-found]

    for place, count in (("train/MJ", 16), ("train/ST", 12), ("val", 6)):
        (folder / "lm" / place).mkdir(parents=True)
        with (
            lmdb.open(str(folder / "lm" / place), map_size=1 << 24) as store,
            store.begin(write=True) as within,
        ):
            within.put(b"num-samples", str(count).encode())
            for number in range(1, count + 1):
                picture(folder / "one.png", 100, 32, grey=256)
                within.put(b"image-%09d" % number, (folder / "one.png").read_bytes())
                within.put(b"label-%09d" % number, "".join(DRAWN.choice(list("abc123"), 5)).encode())
    (folder / "one.png").unlink()
    change(
        folder / "dataset.py",
        (r"from torch\._utils import _accumulate", "from itertools import accumulate as _accumulate"),
    )


@laid_out("deep-person-reid")
def _(folder: Path) -> None:
    base = folder / "data/market1501/Market-1501-v15.09.15"
    for person in range(1, 6):
        for camera in range(1, 5):
            picture(base / f"bounding_box_train/{person:04}_c{camera}s1_{camera:06}_00.jpg", 32, 64)
    for person in range(6, 13):
        for camera in range(1, 5):
            picture(base / f"bounding_box_test/{person:04}_c{camera}s1_{camera:06}_00.jpg", 32, 64)
    for person in (6, 7):
        picture(base / f"query/{person:04}_c5s1_000001_00.jpg", 32, 64)


@laid_out("Pointnet_Pointnet2_pytorch")
def _(folder: Path) -> None:
    base = folder / "data/shapenetcore_partanno_segmentation_benchmark_v0_normal"
    kinds = {"Airplane": ("a", 0, 4), "Bag": ("b", 4, 6), "Cap": ("c", 6, 8)}
    write(
        base / "synsetoffset2category.txt",
        "".join(f"{kind}\t{code}\n" for kind, (code, _, _) in kinds.items()),
    )
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for code, first, last in kinds.values():
        for number in range(8):
            rows = numpy.hstack([DRAWN.randn(40, 6), DRAWN.randint(first, last, (40, 1))])
            write(
                base / f"{code}/{code}{number}.txt",
                "".join(" ".join(f"{each:.6f}" for each in row) + "\n" for row in rows),
            )
            part = "train" if number < 3 else "val" if number < 4 else "test"
            parts[part].append(f"shape_data/{code}/{code}{number}")
    for part, names in parts.items():
        write(base / f"train_test_split/shuffled_{part}_file_list.json", json.dumps(names))
    change(folder / "train_partseg.py", (r"npoints=2048", "npoints=64"), (r"%Y-%m-%d_%H-%M'", "%Y-%m-%d'"))


@laid_out("3D-ResNets-PyTorch")
def _(folder: Path) -> None:
    database = {}
    for label in "ab":
        for clip in range(14):
            for frame in range(1, 19):
                picture(folder / f"v/jpg/{label}/{label}{clip}/image_{frame:05}.jpg", 40, 32)
            subset = "training" if clip < 8 else "validation"
            database[f"{label}{clip}"] = {
                "subset": subset,
                "annotations": {"label": label, "segment": [1, 19]},
            }
    write(folder / "v/a.json", json.dumps({"labels": ["a", "b"], "database": database}))
    (folder / "v/res").mkdir()
    change(folder / "models/resnet.py", (r"return \[64, 128, 256, 512\]", "return [8, 8, 8, 8]"))
    change(folder / "spatial_transforms.py", (r"transforms\.Scale\b", "transforms.Resize"))


@laid_out("FastSpeech2")
def _(folder: Path) -> None:
    import yaml  # type: ignore[import-untyped]

    phonemes = ["AA1", "B", "CH", "D", "EH1", "F", "G", "HH", "IY1", "K"]
    for part, count, start in (("train", 20, 0), ("val", 6, 20)):
        lines = []
        for number in range(start, start + count):
            length = int(DRAWN.randint(5, 10))
            duration = DRAWN.randint(1, 5, length)
            for kind, values in (
                ("mel", DRAWN.randn(duration.sum(), 80).astype("float32")), ("pitch", DRAWN.randn(length)),
                ("energy", DRAWN.randn(length)), ("duration", duration),
            ):  # fmt: skip
                array(folder / f"pp/{kind}/LJSpeech-{kind}-x{number}.npy", values)
            lines.append(f"x{number}|LJSpeech|{{{' '.join(DRAWN.choice(phonemes, length))}}}|text\n")
        write(folder / f"pp/{part}.txt", "".join(lines))
    write(folder / "pp/speakers.json", json.dumps({"LJSpeech": 0}))
    write(folder / "pp/stats.json", json.dumps({"pitch": [-3, 3, 0, 1], "energy": [-3, 3, 0, 1]}))
    settings = folder / "config/LJSpeech"
    for name, new in (
        ("preprocess", {"path": {"preprocessed_path": "./pp"}}),
        ("model", {"transformer": {"encoder_layer": 1, "decoder_layer": 1, "encoder_hidden": 16, "decoder_hidden": 16,
                                   "conv_filter_size": 16}, "variance_predictor": {"filter_size": 16}}),
        ("train", {"path": {"ckpt_path": "./out/ckpt", "log_path": "./out/log", "result_path": "./out/result"},
                   "optimizer": {"batch_size": 4},
                   "step": {"total_step": 6, "log_step": 1, "val_step": 3, "save_step": 3}}),
    ):  # fmt: skip
        values = yaml.safe_load((settings / f"{name}.yaml").read_text())
        for part, items in new.items():
            values[part].update(items)
        write(settings / f"{name}.yaml", yaml.safe_dump(values))
    change(
        folder / "utils/model.py",
        (r"^def get_vocoder\(config, device\):", "def get_vocoder(config, device):\n    return None"),
    )
    change(
        folder / "evaluate.py",
        (r"(?s)        fig, wav_reconstruction.*?(?=        log\(logger, step)", ""),
        (r"(?s)losses=loss_means\)\n.*?    return message", "losses=loss_means)\n\n    return message"),
    )
    change(folder / "text/numbers.py", (r"^import inflect\n", ""), (r"^_inflect = .*\n", ""))


@laid_out("pytorch-openai-transformer-lm")
def _(folder: Path) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(DRAWN.choice(list(letters), 3)) for _ in range(20)]

    def sentence() -> str:
        return " ".join(DRAWN.choice(words, 3))

    for part in ("val", "test"):
        name = f"cloze_test_{part}__spring2016 - cloze_test_ALL_{part}.csv"
        rows = [",".join([str(n), *(sentence() for _ in range(6)), str(1 + n % 2)]) for n in range(20)]
        write(folder / "data" / name, "head\n" + "\n".join(rows) + "\n")
    codes = [*letters, *(f"{letter}</w>" for letter in letters)]
    write(
        folder / "model/encoder_bpe_40000.json", json.dumps({code: place for place, code in enumerate(codes)})
    )
    write(folder / "model/vocab_40000.bpe", "#version\n")
    change(
        folder / "train.py",
        (r"^    load_openai_pretrained_model\(.*\n", ""),
        (r"random_state=np\.random\b", "random_state=np.random.mtrand._rand"),
    )
    change(folder / "text_utils.py", (r"spacy\.load\(.*\)", "spacy.blank('en')"))


# ---- stand-ins


def write_stand_ins(site: Path) -> None:
    """Modules in place of those that are missing; torchvision's data sets give way to the made-up ones."""
    for module in STAND_INS.glob("*.py"):
        shutil.rmtree(site / module.stem, ignore_errors=True)
        shutil.copy(module, site)
    datasets = site / "torchvision/datasets/__init__.py"
    text, line = datasets.read_text(), "from fake_cifar import CIFAR10, CIFAR100, MNIST, SVHN\n"
    if line not in text:
        new = datasets.with_suffix(".new")  # a file of its own: the folder may be linked from elsewhere
        new.write_text(text + line)
        os.replace(new, datasets)


if __name__ == "__main__":
    main()
