"""The report says what was found: verdict first, arithmetic behind it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.output_comparison import FileDifference, FilesComparison, TextComparison, UnlikeLine
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.comparison import Report, headline, report_text
from dp2ddp.report.facts import facts, rows_text
from dp2ddp.report.json_form import as_text
from dp2ddp.report.result_document import Fact, Judged
from dp2ddp.trace.records import Unchecked
from tests.report.forms import markdown, page

GOOD = Comparison(
    steps=4, rank_steps=(4, 4), largest=None, first=None, also=(), identical_steps=4, identical_buffers=True,
    rows=((5, 5), (5, 5), (5, 5), (3, 3)),
)  # fmt: skip
HALF = Difference("gradient", 0.5, step=1, rank=0, name="conv.weight", reference_norm=2.0, norm=1.0)
PARTED = replace(GOOD, first=HALF, largest=HALF, identical_steps=1, ranks_that_agree=((0,), (1,)))
SAME = Verdict(
    world=2, float64=GOOD, float32=GOOD, stdout=TextComparison(7, None),
    printing_ranks=(), files=FilesComparison(1, ()),
    codes=(0, 0), seconds=(1.0, 2.0),
)  # fmt: skip


def report(*verdicts: Verdict) -> Report:
    return Report("train.py", verdicts, "torchrun train_ddp.py", 3.0)


def lines(verdict: Verdict) -> dict[str, str]:
    return {fact.label: fact.words for fact in facts(verdict)}


def test_the_first_word_is_the_verdict() -> None:
    assert headline(report(SAME)).startswith("SAME train.py trains the same")
    parted = headline(report(SAME, replace(SAME, world=3, float64=PARTED)))
    assert (
        parted
        == "DIFFERENT train.py parts from DataParallel at step 1: gradient of conv.weight, on 3 devices"
    )


def test_the_ratio_of_the_gradients_and_the_ranks_that_agree_are_told() -> None:
    marked = tuple(facts(replace(SAME, float64=PARTED)))
    texts = [fact.words for fact in marked if fact.judged is Judged.BAD]
    assert "gradients are 0.5 times as long as under DataParallel" in texts
    assert "at that step the same gradients and parameters on ranks: 0 | 1" in texts


def test_what_a_port_prints_and_saves_is_judged_with_dataparallels_random_numbers_too() -> None:
    """Other random numbers explain other lines and files, and must not cover up a rank's own accuracy or other keys."""
    keys = FileDifference("best.pt", "has other keys")
    told = Aligned(
        GOOD,
        stdout=TextComparison(7, UnlikeLine(2, "acc 0.5", "acc 0.25")),
        files=FilesComparison(1, (keys,)),
    )
    verdict = replace(SAME, float64=PARTED, aligned=told)
    same_ones = "draws other random numbers than DataParallel, and trains the same with the same ones"
    assert headline(report(verdict)) == (
        f"DIFFERENT train.py {same_ones}, but prints other lines and writes other files, on 2 devices"
    )
    bad = [fact.words for fact in facts(verdict) if fact.judged is Judged.BAD]
    assert "with them, too, line 2 is 'acc 0.25', under DataParallel 'acc 0.5'" in bad
    assert "with them, too, best.pt has other keys" in bad
    agreed = replace(verdict, aligned=Aligned(GOOD, stdout=SAME.stdout, files=SAME.files))
    assert headline(report(agreed)) == f"DIFFERENT train.py {same_ones}, on 2 devices"
    unjudged = replace(verdict, only_gradients=True)
    assert headline(report(unjudged)) == f"DIFFERENT train.py {same_ones}, on 2 devices"


def test_a_fault_behind_other_random_numbers_is_in_the_headline() -> None:
    """The likeliest cause is another shuffle; the aligned runs disprove that it is the only one."""
    order = Cause("other-order", "The batches hold other samples.", ("figures",), "advice", 0.9, ())
    later = replace(HALF, step=3, name="head.bias")
    told = Aligned(replace(PARTED, first=later))
    verdict = replace(SAME, float64=PARTED, causes=(order,), aligned=told)
    assert headline(report(verdict)) == (
        "DIFFERENT train.py parts from DataParallel with the same random numbers, too, at step 3: "
        "gradient of head.bias, on 2 devices"
    )
    sure = replace(order, code="batch-size")
    assert "at step 1: gradient of conv.weight" in headline(report(replace(verdict, causes=(sure,))))


def test_what_is_only_shown_does_not_look_like_a_pass() -> None:
    later = replace(PARTED, first=replace(HALF, step=3))
    marks = {fact.label: fact.judged for fact in facts(replace(SAME, float32=later))}
    assert marks["float64"] is Judged.GOOD
    assert marks["float32"] is Judged.SHOWN
    judged = {fact.label: fact.judged for fact in facts(replace(SAME, only_gradients=True))}
    assert judged["stdout"] is Judged.SHOWN


def test_the_likeliest_cause_is_told_with_its_figures_and_advice_others_by_their_title() -> None:
    first = Cause(
        "mean-for-sum", "Too small.", ("0.5 times: 1/W",), "Multiply by 2.", 0.9, ("DDP201 line 3",)
    )
    other = Cause("other-order", "Another order.", ("2 of 8 rows",), "Shuffle alike.", 0.5, ())
    text = report_text(report(replace(SAME, causes=(first, other))))
    lines = text.partition("  likely  ")[2].splitlines()[:5]
    assert [line.split(maxsplit=1) for line in (f"likely {lines[0]}", *lines[1:])] == [
        ["likely", "Too small. [mean-for-sum]"],
        ["0.5", "times: 1/W"],
        ["to", "change  Multiply by 2."],
        ["edits", "DDP201 line 3"],
        ["or", "Another order. [other-order] 2 of 8 rows"],
    ]


@pytest.mark.parametrize(
    ("rows", "world", "text"),
    [
        pytest.param([(15, 15), (5, 5)], 2, "30 rows over 2 ranks: 15 + 15; 10: 5 + 5", id="two"),
        pytest.param([(4, 4, 2)], 3, "10 rows over 3 ranks: 4 + 4 + 2", id="uneven"),
        pytest.param([(1,)] * 3, 1, "1 row over 1 rank: 1", id="one"),
        pytest.param(
            [(n,) for n in range(1, 7)], 1, "1 row over 1 rank: 1; 2: 2; 3: 3; 4: 4; 2 more sizes", id="many"
        ),
        pytest.param([(2, 2, 1)], 4, "5 rows over 4 ranks: 2 + 2 + 1 + 0", id="a rank without rows"),
    ],
)
def test_rows_show_the_arithmetic(rows: list[tuple[int, ...]], world: int, text: str) -> None:
    assert rows_text(rows, world) == text


def test_float32_tells_bits_from_rounding() -> None:
    assert "bit for bit the same in all 4 steps" in lines(SAME)["float32"]
    assert lines(replace(SAME, float32=replace(GOOD, steps=1, identical_steps=1)))["float32"].endswith(
        "the same in 1 step"
    )
    rounded = replace(GOOD, identical_steps=1, largest=replace(HALF, size=2e-7))
    assert (
        "1 of 4 steps bit for bit the same; largest difference 2.0e-07"
        in (lines(replace(SAME, float32=rounded))["float32"])
    )


def test_nothing_is_said_of_float32_where_nothing_was_trained_in_it() -> None:
    double = replace(SAME, float32=None)
    assert double.same
    assert lines(SAME).keys() - lines(double).keys() == {"float32"}
    assert json.loads(as_text(report(double)))["verdicts"][0]["float32"] is None


def test_a_script_without_a_step_is_compared_by_what_it_prints_and_leaves() -> None:
    none = replace(GOOD, steps=0, rank_steps=(0, 0), identical_steps=0)
    found = lines(replace(SAME, float64=none, float32=none))
    assert "takes no optimizer step" in found["steps"]
    assert "float64" not in found


def test_a_report_names_what_was_compared_and_no_more() -> None:
    passes = replace(GOOD, stepped=False, parts=("gradient", "parameter"))
    verdict = replace(SAME, float64=passes, float32=None)
    assert lines(verdict)["float64"] == "every gradient and parameter is the same to the last bit"
    assert (
        lines(verdict)["steps"] == "no optimizer takes one: the gradients of 4 backward passes are compared"
    )
    assert "computes the same gradients" in headline(report(verdict))


def test_where_nothing_could_differ_nothing_was_compared() -> None:
    none = replace(GOOD, steps=0, rank_steps=(0, 0), identical_steps=0)
    silent = replace(
        SAME, float64=none, float32=None, stdout=TextComparison(0, None), files=FilesComparison(0, ())
    )
    assert silent.compared_nothing
    assert headline(report(silent)).startswith("NOTHING COMPARED of")
    assert json.loads(as_text(report(silent)))["outcome"] == "nothing compared"
    assert markdown(report(silent)).startswith(
        "## \N{WARNING SIGN}\N{VARIATION SELECTOR-16} NOTHING COMPARED: of "
    )
    assert not replace(silent, stdout=TextComparison(1, None)).compared_nothing
    assert "prints the same" in headline(report(replace(silent, stdout=TextComparison(1, None))))
    failed = replace(silent, stdout=TextComparison(1, None), codes=(2, 2))  # "loading ...", then no such file
    assert headline(report(failed)).endswith("no backward pass, and it ends with exit code 2")
    assert not replace(SAME, codes=(2, 2)).compared_nothing
    lost = report(replace(SAME, float64=replace(GOOD, lost_from=0)))
    assert headline(lost) == "NOTHING COMPARED of train.py: its losses are NaN or infinite"
    assert not replace(SAME, float64=replace(GOOD, lost_from=1)).compared_nothing


@pytest.mark.parametrize(
    ("change", "label", "words"),
    [
        (
            {"stdout": TextComparison(2, UnlikeLine(2, "a", "b"))},
            "stdout",
            "line 2 is 'b', under DataParallel 'a'",
        ),
        ({"printing_ranks": (1,)}, "stdout", "rank 1 prints as well"),
        (
            {"files": FilesComparison(1, (FileDifference("x", "is written by DDP only"),))},
            "files",
            "x is written",
        ),
        ({"codes": (0, 3)}, "exit codes", "0 and 3"),
    ],
)
def test_what_the_outside_sees_counts_too(change: dict[str, object], label: str, words: str) -> None:
    verdict = replace(SAME, **change)  # type: ignore[arg-type]
    assert not verdict.same
    assert words in lines(verdict)[label]


def test_the_document_is_json_without_infinities() -> None:
    missing = replace(HALF, size=float("inf"))
    verdict = replace(SAME, float64=replace(PARTED, first=missing))
    document = json.loads(as_text(report(verdict)))
    assert document["schema"] == "dp2ddp.verify/2"
    assert not document["same"]
    first = document["verdicts"][0]["float64"]["first"]
    assert (first["size"], first["ratio"]) == (None, 0.5)


def test_a_run_that_failed_is_never_told_as_the_same() -> None:
    failed = replace(report(SAME), failure="train.py: hangs")
    assert not failed.same
    assert headline(failed) == "FAILED train.py is the same on 2 devices, but could not be compared further"
    nothing = replace(report(), failure="train.py: hangs")
    assert not nothing.same
    assert headline(nothing) == "FAILED train.py could not be compared"
    assert "start it with" not in report_text(nothing)
    parted = replace(report(replace(SAME, float64=PARTED)), failure="train.py: hangs")
    assert headline(parted).startswith("DIFFERENT")


def test_a_version_of_the_users_own_is_the_one_that_parts() -> None:
    port = replace(report(replace(SAME, float64=PARTED)), port="mine.py")
    assert headline(port).startswith("DIFFERENT mine.py parts from train.py under DataParallel at step 1")
    assert headline(replace(report(SAME), port="mine.py")) == (
        "SAME mine.py trains the same as train.py under DataParallel, on 2 devices"
    )


def test_a_fact_that_differs_is_no_number_that_is_missing() -> None:
    words = "autocast to float32 instead of float16"
    fact = replace(PARTED, first=Difference("precision", float("inf"), 1, 0, words))
    told = lines(replace(SAME, float64=fact))["float64"]
    assert told == f"precision: {words} at step 1"


def test_what_doubles_hide_is_a_difference_in_float32() -> None:
    """A hook that sends gradients as bfloat16: in float64 it sends doubles."""
    first = replace(PARTED, first=replace(HALF, step=0))
    single = replace(SAME, float32=first)
    assert not single.same
    assert replace(SAME, float32=PARTED).same  # later: the sign of a gradient may have turned
    assert "trains the same in float64, and otherwise in float32" in headline(report(single))
    start = replace(HALF, kind="initial state", step=0)
    assert not replace(SAME, float32=replace(PARTED, first=start)).same
    decision = replace(HALF, kind="decision", size=float("inf"))
    assert replace(SAME, float32=replace(PARTED, first=decision)).same


def test_what_virtual_devices_leave_out_is_told_in_each_form_of_the_report() -> None:
    asked = (Unchecked.COMPILE, Unchecked.TF32)
    verdict = replace(SAME, float64=replace(GOOD, unchecked=asked))
    text = "not checked: torch.compile (it ran as plain Python), TF32"
    assert Fact("note", text, Judged.SHOWN) in facts(verdict)
    assert json.loads(as_text(report(verdict)))["verdicts"][0]["unchecked"] == [each.value for each in asked]
    assert "not checked: torch.compile" in markdown(report(verdict))
    assert "not checked" not in str(list(facts(SAME)))


def test_answered_hazards_stand_in_every_form() -> None:
    answered = replace(report(SAME), accepted=({"text": "train.py:5:1: asks (DDP906), by --accept"},))
    for text in (report_text(answered), markdown(answered), page(answered)):
        assert "asks (DDP906), by --accept" in text
        assert "may come from it" not in text
    differs = replace(answered, verdicts=(replace(SAME, float64=PARTED),))
    assert "by --accept: what differs may come from it" in report_text(differs)


def test_many_files_that_differ_are_a_few_short_lines() -> None:
    alone = [FileDifference(f"epoch{number:02}.pt", "is written by DDP only") for number in range(16)]
    texts = [
        FileDifference(f"log{number}.txt", f"line {number}: 'a' under DataParallel") for number in range(9)
    ]
    verdict = replace(SAME, files=FilesComparison(25, (*alone, *texts)))
    told = [(fact.label, fact.words) for fact in facts(verdict) if fact.judged is Judged.BAD]
    assert told == [
        (
            "files",
            "epoch00.pt (and epoch01.pt, epoch02.pt, epoch03.pt, epoch04.pt and 11 more) is written by DDP only",
        ),
        ("", "log0.txt line 0: 'a' under DataParallel"),
        ("", "log1.txt line 1: 'a' under DataParallel"),
        ("", "log2.txt line 2: 'a' under DataParallel"),
        ("", "and 6 more"),
    ]


def test_the_last_words_of_an_original_that_ends_with_a_code_are_shown() -> None:
    verdict = replace(SAME, codes=(2, 2), last_words=("usage: train.py", "train.py: error: no --data"))
    told = [(fact.words, fact.judged) for fact in facts(verdict) if fact.label == "on stderr"]
    assert told == [
        ("of DataParallel: usage: train.py", Judged.SHOWN),
        ("of DataParallel: train.py: error: no --data", Judged.SHOWN),
    ]
