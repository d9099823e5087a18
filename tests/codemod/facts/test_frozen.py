"""A script whose only DataParallel is a frozen teacher hears that there is nothing to gain."""

from __future__ import annotations

import textwrap

import pytest

from tests.codemod.scripts import converted

HEAD = """
import torch
teacher, student = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
"""
LOOP = """
for x in batches:
    {teach}
    loss = (student(x) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
WRAP = "teacher = torch.nn.DataParallel(teacher)\n"
OF_STUDENT = "optimizer = torch.optim.SGD(student.parameters(), lr=0.1)\n"
NO_GRAD = "with torch.no_grad():\n        wanted = teacher(x)"
FREEZE = "for p in teacher.parameters():\n    p.requires_grad = False\n"


def is_told(text: str) -> bool:
    conversion = converted(HEAD + textwrap.dedent(text))
    assert conversion.changed
    return any("only models that are not trained" in one.because for one in conversion.notes)


@pytest.mark.parametrize(
    "text",
    [
        WRAP + OF_STUDENT + LOOP.format(teach=NO_GRAD),
        WRAP + FREEZE + OF_STUDENT + LOOP.format(teach="wanted = teacher(x)"),
        WRAP + "teacher.requires_grad_(False)\n" + OF_STUDENT + LOOP.format(teach="wanted = teacher(x)"),
        WRAP
        + OF_STUDENT
        + "@torch.no_grad()\ndef teach(x):\n    return teacher(x)\n"
        + LOOP.format(teach="wanted = teach(x)"),
    ],
)
def test_a_frozen_teacher_alone_is_told(text: str) -> None:
    assert is_told(text)


@pytest.mark.parametrize(
    "text",
    [
        WRAP + "student = torch.nn.DataParallel(student)\n" + OF_STUDENT + LOOP.format(teach=NO_GRAD),
        WRAP + OF_STUDENT + LOOP.format(teach="wanted = teacher(x)"),  # its gradients may be wanted
        WRAP
        + "both = [*student.parameters(), *teacher.parameters()]\noptimizer = torch.optim.SGD(both, lr=0.1)\n"
        + LOOP.format(teach=NO_GRAD),
        WRAP + "with torch.no_grad():\n    print(teacher(x))\n",  # nothing is trained: it infers, faster
    ],
)
def test_others_are_not(text: str) -> None:
    assert not is_told(text)
