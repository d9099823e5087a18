"""What each commit runs of the corpus has everything that the whole corpus has, and `--all` is the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from corpus.test_corpus import COMPUTED, COVERING, IN_FLOAT32, TRAINING, computed, features
from covering import covering

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_idiom_choice_and_number_of_devices_is_among_the_few() -> None:
    every = {feature for run in TRAINING for feature in features(run)}
    assert {feature for run in COVERING for feature in features(run)} == every
    assert len(COVERING) < len(TRAINING) / 4
    assert {feature for run in IN_FLOAT32 for feature in computed(run)} > COMPUTED & every


def test_each_of_the_few_adds_something() -> None:
    chosen = covering(TRAINING, features)
    for place, run in enumerate(chosen):
        before = {feature for earlier in chosen[:place] for feature in features(earlier)}
        assert features(run) - before, run[0].name


def test_all_is_the_whole_and_a_name_is_enough_for_one() -> None:
    left_out = next(run for run in TRAINING if run not in COVERING)
    name = f"tests/corpus/test_corpus.py::test_a_script_trains_the_same[{left_out[0].name}-{left_out[1]}]"

    assert count_runs("tests/corpus/test_corpus.py") == len(COVERING)
    assert count_runs("tests/corpus/test_corpus.py", "--all") == len(TRAINING)
    assert count_runs(name) == 1


def count_runs(*arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return listed.count("::test_a_script_trains_the_same[")
