"""DataParallel by its name: converted where the name is written there, a hazard where it may be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.convert import Conversion, convert
from dp2ddp.source.projects import read_project
from dp2ddp.source.settings_files import names_data_parallel
from tests.codemod.scripts import converted

HEAD = "import builtins, importlib, json, operator, pydoc\nimport torch\nimport torch.nn as nn\n"
TRAIN = "net = WRAP(nn.Linear(2, 2))\nnet(torch.ones(4, 2)).sum().backward()\n"


@pytest.mark.parametrize(
    "wrap",
    [
        "getattr(nn, 'DataParallel')",
        "getattr(torch.nn, NAME)",
        "getattr(nn.parallel, 'DataParallel')",
        "getattr(importlib.import_module('torch.nn'), 'DataParallel')",
        "importlib.import_module('torch.nn').DataParallel",
        "vars(nn)['DataParallel']",
        "nn.__dict__['DataParallel']",
        "nn.__dict__.get('DataParallel')",
        "operator.attrgetter('DataParallel')(nn)",
        "eval('nn.DataParallel')",
        "pydoc.locate('torch.nn.DataParallel')",
    ],
)
def test_a_name_that_is_written_there_is_the_class(wrap: str) -> None:
    conversion = converted(HEAD + "NAME = 'DataParallel'\n" + TRAIN.replace("WRAP", wrap))
    assert conversion.hazards == ()
    assert "net = DataParallelOnRanks(nn.Linear(2, 2))" in conversion.after


@pytest.mark.parametrize(
    "wrap",
    [
        "getattr(nn, config['parallel'])",
        "getattr(torch.nn, args.parallel, None)",
        "getattr(importlib.import_module('torch.nn'), config['parallel'])",
        "getattr(importlib.import_module(config['module']), config['parallel'])",
        "vars(nn)[config['parallel']]",
        "nn.__dict__[config['parallel']]",
        "nn.__dict__.get(config['parallel'])",
        "operator.attrgetter(config['parallel'])(nn)",
        "eval(config['parallel'])",
        "pydoc.locate(config['parallel'])",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "config = {'parallel': 'DataParallel'}",
        'config = json.loads(\'{"parallel": "nn.DataParallel"}\')',
        'config = load("""\nparallel: DataParallel\n""")',
        "parser.add_argument('--parallel', choices=['none', 'torch.nn.DataParallel'])",
    ],
)
def test_a_name_that_stands_elsewhere_is_a_hazard(wrap: str, text: str) -> None:
    conversion = converted(HEAD + text + "\n" + TRAIN.replace("WRAP", wrap))
    (hazard,) = conversion.hazards
    assert hazard.code == "DDP902"
    assert "line 4 names it" in hazard.because
    assert "['parallel']" in hazard.because or "`args.parallel`" in hazard.because
    assert not conversion.changed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "print('Using DataParallel on', n, 'GPUs')\nact = getattr(nn, args.act)()", id="a message"
        ),
        pytest.param('"""Wraps in DataParallel."""\nact = getattr(nn, args.act)()', id="a docstring"),
        pytest.param("NAME = 'DistributedDataParallel'\nact = getattr(nn, args.act)()", id="another class"),
        pytest.param("NAME = 'DataParallel'\nnet = getattr(models, args.arch)()", id="another module"),
    ],
)
def test_other_lookups_are_none(text: str) -> None:
    wrapped = converted(HEAD + text + "\n" + TRAIN.replace("WRAP", "nn.DataParallel"))
    assert wrapped.hazards == ()
    assert wrapped.changed


def of_files(folder: Path, script: str, **files: str) -> Conversion:
    (folder / "train.py").write_text(HEAD + script, encoding="utf-8")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return convert(read_project(folder / "train.py"))


LOOKUP = "config = json.load(open('config.json'))\nnet = getattr(nn, config['parallel'])(nn.Linear(2, 2))\n"


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("config_json", '{\n  "parallel": "DataParallel"\n}', "config.json:2"),
        ("configs__base_yaml", "lr: 0.1\nparallel: nn.DataParallel  # or none\n", "configs/base.yaml:2"),
    ],
)
def test_files_of_settings_beside_the_script_are_read(
    tmp_path: Path, name: str, text: str, where: str
) -> None:
    conversion = of_files(tmp_path, LOOKUP, **{name: text})
    (hazard,) = conversion.hazards
    assert f"{where} names it" in hazard.because


@pytest.mark.parametrize(
    "text", ['{"parallel": "DistributedDataParallel"}', '{"note": "we use DataParallel here"}', "{}"]
)
def test_files_that_do_not_name_it_matter_nothing(tmp_path: Path, text: str) -> None:
    conversion = of_files(tmp_path, LOOKUP, config_json=text)
    assert conversion.hazards == ()
    assert not conversion.changed


def test_files_are_not_asked_where_nothing_is_looked_up(tmp_path: Path) -> None:
    conversion = of_files(tmp_path, "print('hello')\n", config_json='{"parallel": "DataParallel"}')
    assert conversion.hazards == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: DataParallel\n", 2),
        ("b = torch.nn.DataParallel", 1),
        ("python train.py --parallel DataParallel \\\n", 1),
        ("[model]\nwrap='DataParallel'\n", 2),
        ("we train with DataParallel on 4 GPUs", None),
        ("b: DistributedDataParallel", None),
    ],
)
def test_what_names_it_as_a_value(text: str, line: int | None) -> None:
    assert names_data_parallel(text) == line
