"""How far apart two runs may be."""

from __future__ import annotations

import pytest

from dp2ddp.comparison.tolerance import FLOAT64


@pytest.mark.parametrize(
    ("noise", "allowed"),
    [
        pytest.param(0.0, 1e-10, id="no noise, no room"),
        pytest.param(1e-13, 1e-10, id="less than rounding anyway"),
        pytest.param(7e-8, 7e-7, id="Adam on a bias in front of BatchNorm"),
        pytest.param(700.0, 1e-5, id="never so much that nothing is compared"),
    ],
)
def test_noise_gives_room_to_what_follows_from_it_and_not_more(noise: float, allowed: float) -> None:
    assert FLOAT64.with_noise(noise).allowed == pytest.approx(allowed)


def test_tensors_of_nothing_but_noise_get_room_of_its_size() -> None:
    assert FLOAT64.with_noise(0.5, 3e-16).floor == pytest.approx(3e-15)
    assert FLOAT64.with_noise(0.5, 3.0).floor == pytest.approx(1e-5)
    assert FLOAT64.floor == 0.0


def test_gradients_get_no_room_from_noise() -> None:
    assert FLOAT64.allowed == 1e-10
