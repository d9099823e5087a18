"""Which clocks all ranks must share."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.clocks import shared_clocks
from dp2ddp.codemod.facts.modules import Modules
from tests.codemod.scripts import project_of


def shared(text: str) -> list[int]:
    modules = Modules(project_of("import time, uuid, os\n" + text))
    return [call.node.lineno for call in shared_clocks(modules.entry, modules)]


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
        pytest.param("t = time.time()\nif time.time() - t > 5:\n    quit()\n", [2, 3], id="decides"),
        pytest.param(
            "t = time.time()\nspent = time.time() - t\nwhile spent < 5:\n    work()\n",
            [2, 3],
            id="decides by a name",
        ),
        pytest.param(
            "class S:\n"
            "    def __init__(self, n):\n        self.t, self.n = time.time(), n\n"
            "    def over(self):\n        return time.time() - self.t > self.n\n"
            "while not S(5).over():\n    work()\n",
            [4, 6],
            id="decides in a class",
        ),
        pytest.param(
            "class S:\n"
            "    def start(self):\n        self.t = time.time()\n"
            "    def spent(self):\n        return time.time() - self.t\n"
            "if s.spent() > 5:\n    quit()\n",
            [4, 6],
            id="decides by what a method returns",
        ),
        pytest.param(
            "begin = time.time()\nend = time.time()\nprint(time.time() - end)\n"
            "if time.time() - begin > 5:\n    quit()\n",
            [2, 5],
            id="one decides, another is printed",
        ),
        pytest.param(
            "from meters import Meter\nmeter = Meter()\n"
            "def fit():\n    end = time.time()\n    meter.update(time.time() - end)\n    end = time.time()\n"
            "def limit():\n    end = time.time()\n    return time.time() - end > 5\n"
            "if limit():\n    quit()\n",
            [9, 10],
            id="one of a name in another function decides",
        ),
        pytest.param("seed = int(time.time())\nrandom.seed(seed)\n", [2], id="seeds"),
        pytest.param("name = time.strftime('%H')\nos.mkdir(name)\n", [2], id="strftime"),
        pytest.param("now = time.strftime('%H')\nprint(f'{now} done')\n", [], id="printed"),
        pytest.param(
            "print('{}'.format(time.asctime(time.localtime(time.time()))))\n", [], id="printed at once"
        ),
        pytest.param("log.write('at ' + time.strftime('%H'))\n", [], id="written by rank 0"),
        pytest.param("t = time.time()\nboard.add_scalar('t', t, step)\n", [], id="tracked by rank 0"),
        pytest.param("name = time.strftime('%H', t)\n", [], id="of a time that is given"),
        pytest.param("name = uuid.uuid4().hex\n", [2], id="uuid"),
        pytest.param("p = os.getpid()\n", [2], id="process id"),
    ],
)
def test_a_clock_is_shared_where_it_matters(text: str, lines: list[int]) -> None:
    assert shared(text) == lines
