"""Which clocks all ranks must share."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.clocks import shared_clocks
from tests.codemod.scripts import script_of


def shared(text: str) -> list[int]:
    return [call.node.lineno for call in shared_clocks(script_of("import time, uuid, os\n" + text))]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("t = time.time()\nprint(time.time() - t)\n", [], id="measures"),
        pytest.param(
            "t = time.time()\nlast = t\nd = time.time() - last\n", [], id="measures by another name"
        ),
        pytest.param("n, t = 0, time.time()\nprint(time.time() - t)\n", [], id="measures, one of several"),
        pytest.param("n, t = 0, time.time()\nopen('a%d' % t)\n", [2], id="makes a name, one of several"),
        pytest.param("name = 'run-%d' % time.time()\nopen(name)\n", [2], id="makes a name"),
        pytest.param("t = time.time()\nif time.time() - t > 5:\n    pass\n", [2, 3], id="decides"),
        pytest.param(
            "t = time.time()\nspent = time.time() - t\nwhile spent < 5:\n    pass\n",
            [2, 3],
            id="decides by a name",
        ),
        pytest.param("seed = int(time.time())\nrandom.seed(seed)\n", [2], id="seeds"),
        pytest.param("name = time.strftime('%H')\nos.mkdir(name)\n", [2], id="strftime"),
        pytest.param("now = time.strftime('%H')\nprint(f'{now} done')\n", [], id="printed"),
        pytest.param(
            "print('{}'.format(time.asctime(time.localtime(time.time()))))\n", [], id="printed at once"
        ),
        pytest.param("name = time.strftime('%H', t)\n", [], id="of a time that is given"),
        pytest.param("name = uuid.uuid4().hex\n", [2], id="uuid"),
        pytest.param("p = os.getpid()\n", [2], id="process id"),
    ],
)
def test_a_clock_is_shared_where_it_matters(text: str, lines: list[int]) -> None:
    assert shared(text) == lines
