"""How far apart two arrays are: no part of a number is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2ddp.comparison.differences import array_difference, distances_between, largest, named_difference
from tests.comparison.traces import named

COMPLEX = [np.complex64, np.complex128]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_the_imaginary_parts_count(dtype: type) -> None:
    a, b = np.array([1 + 1j, 2 - 2j], dtype), np.array([1 + 1j, 2 + 1j], dtype)
    assert distances_between(a, b).tolist() == [0.0, 3.0]
    assert largest(a) == pytest.approx(math.sqrt(8))
    assert array_difference(a, b) == pytest.approx(3 / math.sqrt(8))
    assert array_difference(a, a.copy()) == 0.0


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_part_that_is_no_number_hides_nothing_of_the_other_part(dtype: type) -> None:
    nothing, inf = complex(math.nan, 1), complex(math.inf, 1)
    a = np.array([nothing, inf, nothing, 1], dtype)
    assert distances_between(a, a.copy()).tolist() == [0.0, 0.0, 0.0, 0.0]
    b = np.array([complex(math.nan, 3), complex(math.inf, 4), 0, nothing], dtype)
    first, second, *others = distances_between(a, b).tolist()
    assert (first, second) == (2.0, 3.0)
    assert all(map(math.isnan, others))


def test_beside_a_real_array_a_complex_one_is_apart_by_its_imaginary_part() -> None:
    assert distances_between(np.array([1.0]), np.array([1 + 2j])).tolist() == [2.0]


@pytest.mark.parametrize("together", [False, True])
def test_a_tensor_that_is_no_number_is_not_hidden_by_one_behind_it(together: bool) -> None:
    expected = named({"exp_avg of a": np.array([1.0]), "exp_avg of b": np.array([1.0])})
    actual = named({"exp_avg of a": np.array([math.nan]), "exp_avg of b": np.array([1.0 + 1e-15])})
    name, size = named_difference(expected, actual, together)
    assert name == "exp_avg of a"
    assert math.isnan(size)
