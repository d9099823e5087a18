from __future__ import annotations

from collections.abc import Iterator

import pytest

from dp2ddp.runtime.server import Server
from dp2ddp.trial.runs import environment


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(environment()) as server:
        yield server
