"""A notebook as a script: which line becomes what, and where it says that it came from."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from ipynb import notebook

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.read_source import read_source
from tests.cli.scripts import python

MARKS = ("# %%", "# t.ipynb")


def read(folder: Path, *cells: str, counts: tuple[int | None, ...] = ()) -> SourceFile:
    return read_source(notebook(folder, *cells, name="t.ipynb", counts=counts))


def body(source: SourceFile) -> list[str]:
    """The lines of the cells; what stands above the first one does not count."""
    below = source.text[source.text.index("# %% cell 1") :]
    return [line for line in below.splitlines() if line and not line.startswith(MARKS)]


def told(source: SourceFile) -> list[str]:
    assert source.cells
    return [f"{source.place(one.line)}: {one.because}" for one in source.cells.asides]


def hazards(source: SourceFile) -> list[str]:
    assert source.cells
    return [f"{source.place(one.line)}: {one.because}" for one in source.cells.asides if one.advice]


class TestCells:
    def test_they_stand_from_top_to_bottom_with_prose_as_comments(self, tmp_path: Path) -> None:
        source = read(tmp_path, "md:# Title\n\nprose", "a = 1", "", "md:", "b = 2\nb")

        assert source.text == (
            "# t.ipynb, cell by cell\n"
            "\n# %% [markdown]\n# # Title\n#\n# prose\n"
            "\n# %% cell 1\na = 1\n"
            "\n# %% cell 2\nb = 2\nb\n"
        )

    def test_every_line_knows_its_cell(self, tmp_path: Path) -> None:
        source = read(tmp_path, "md:prose", "a = 1\nb = 2", "c = 3")
        lines = source.text.splitlines()

        places = {line: str(source.place(number)) for number, line in enumerate(lines, 1) if "=" in line}

        assert places == {"a = 1": "cell 1, line 1", "b = 2": "cell 1, line 2", "c = 3": "cell 2, line 1"}

    def test_a_line_between_cells_is_one_of_the_script(self, tmp_path: Path) -> None:
        source = read(tmp_path, "a = 1", "md:prose", "b = 2")

        assert str(source.place(1)) == "line 1"
        assert str(source.place(source.text.splitlines().index("# prose") + 1)).startswith("line ")

    def test_python_stays_byte_for_byte(self, tmp_path: Path) -> None:
        code = "x = {  # 空\n\t'a' :1 ,\n}  \nif x :\n  y = '''%time\n!ls\n'''\n\n\nz = (1\n % 2)\nw = x != y; v = '?'"

        assert read(tmp_path, code).text.endswith(f"# %% cell 1\n{code}\n")

    def test_line_endings_of_a_cell_stay(self, tmp_path: Path) -> None:
        source = read(tmp_path, "a = 1\r\nb = 2\r\n%time c = 3\r\nd = 4")

        assert "a = 1\r\nb = 2\r\nc = 3  # %time c = 3\r\nd = 4\r\n" in source.text

    def test_a_coding_comment_in_a_cell_means_nothing(self, tmp_path: Path) -> None:
        source = read(tmp_path, "# -*- coding: latin-1 -*-\nname = 'é'")

        namespace: dict[str, str] = {}
        exec(compile(source.encoded(source.text), "t.py", "exec"), namespace)

        assert namespace["name"] == "é"

    def test_a_cell_that_is_indented_as_a_whole_comes_to_the_margin(self, tmp_path: Path) -> None:
        assert body(read(tmp_path, "    a = 1\n    if a:\n        b = 2")) == ["a = 1", "if a:", "    b = 2"]

    def test_pictures_inside_of_prose_are_cut_short(self, tmp_path: Path) -> None:
        picture = f"![](data:image/png;base64,{'iVBORw0KGgo' * 900})"

        assert "# ![](data:image/png;base64,...)\n" in read(tmp_path, f"md:{picture}", "x = 1").text

    def test_a_shell_line_over_several_lines_keeps_their_number(self, tmp_path: Path) -> None:
        source = read(tmp_path, "!wget -q \\\n  a.zip\nx = 1")

        assert body(source) == ['os.system("wget -q    a.zip")  # !wget -q \\', "# set aside: a.zip", "x = 1"]

    def test_outputs_are_left_behind(self, tmp_path: Path) -> None:
        assert "an old output" not in read(tmp_path, "print(1)").text

    def test_imports_from_the_future_stand_first(self, tmp_path: Path) -> None:
        source = read(tmp_path, "import os", "from __future__ import annotations, division\n%env A=1")

        compile(source.text, "t.py", "exec")
        assert source.text.splitlines()[1] == "from __future__ import annotations, division"
        assert "# above: from __future__ import annotations, division" in body(source)
        assert not any("__future__" in one for one in told(source))


class TestMagics:
    @pytest.mark.parametrize(
        "line",
        [
            "%matplotlib inline",
            "%load_ext autoreload",
            "%autoreload 2",
            "!pip install -q torch>=2",
            "%pip install torch",
            "pip install torch",
            "!{sys.executable} -m pip install torch",
            "!apt-get -qq install tree && nvidia-smi",
            "!nvidia-smi",
            "!ls -la data | head -3",
            "!cd somewhere",
            "ls -la",
            "%timeit f(x)",
            "%whos",
            "?len",
            "len??",
            "net.forward?",
        ],
    )
    def test_what_shows_installs_or_measures_is_set_aside_and_listed(self, tmp_path: Path, line: str) -> None:
        source = read(tmp_path, f"import sys\n{line}\nx = 1")

        assert body(source) == ["import sys", f"# set aside: {line}", "x = 1"]
        (said,) = told(source)
        assert said.startswith(f"cell 1, line 2: `{line}` is set aside: ")
        assert hazards(source) == []

    def test_a_block_keeps_a_statement(self, tmp_path: Path) -> None:
        source = read(tmp_path, "for x in [1]:\n    !ls {x}\nelse:\n    %time y = x")

        assert body(source) == ["for x in [1]:", "    pass  # set aside: !ls {x}", "else:",
                                "    y = x  # %time y = x"]  # fmt: skip

    @pytest.mark.parametrize(
        ("line", "python"),
        [
            ("%env CUDA_VISIBLE_DEVICES=0,1", 'os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'),
            ("%env OMP_NUM_THREADS 4", 'os.environ["OMP_NUM_THREADS"] = "4"'),
            ("%set_env RUN {run}", 'os.environ["RUN"] = "{}".format(run)'),
            ("%cd data", 'sys.path.insert(0, os.path.abspath("data")); os.chdir("data")'),
            ("!mkdir -p $run/{run + 'x'}", "os.system(\"mkdir -p {}/{}\".format(run, run + 'x'))"),
            ("!echo $HOME > home.txt", 'os.system("echo $HOME > home.txt")'),
            ("!ls | awk '{print $1 + }' > a", "os.system(\"ls | awk '{print $1 + }' > a\")"),
            ("!cp a b; ls", 'os.system("cp a b; ls")'),
            ("%mkdir out", 'os.system("mkdir out")'),
            ("names = !ls *.txt", 'names = subprocess.getoutput("ls *.txt").splitlines()'),
            ("%time y = f(3)", "y = f(3)"),
            ("y = %time f(3)", "y = f(3)"),
            ("here = %pwd", "here = os.getcwd()"),
        ],
    )
    def test_what_changes_something_is_done_in_python(self, tmp_path: Path, line: str, python: str) -> None:
        source = read(tmp_path, f"run = 1\n{line}")

        assert body(source) == ["run = 1", f"{python}  # {line}"]
        assert len(told(source)) == 1
        assert hazards(source) == []
        compile(source.text, "t.py", "exec")

    @pytest.mark.parametrize(
        "line",
        [
            "%run other.py",
            "%pylab inline",
            "%store -r weights",
            "%cd -",
            "%my_own_magic x",
            "t = %timeit -o f()",
            "x = %my_own_magic",
            "%time -r 3 f()",
        ],
    )
    def test_what_the_training_may_depend_on_stands_in_the_way(self, tmp_path: Path, line: str) -> None:
        (said,) = hazards(read(tmp_path, f"a = 1\n{line}"))

        assert said.startswith(f"cell 1, line 2: `{line}` ")

    def test_a_percent_or_a_question_mark_inside_of_python_is_python(self, tmp_path: Path) -> None:
        code = "x = 7\nx %= 4\ny = (x\n     % 2)\nprint('what?')  # really?\ns = f'{x!r:>4}'\nls = [x]\nls"
        code += "\nz = x \\\n% 2"

        assert body(read(tmp_path, code)) == code.splitlines()

    def test_an_apostrophe_in_a_shell_line_opens_no_string(self, tmp_path: Path) -> None:
        assert body(read(tmp_path, "!echo it's (\nx = 1")) == ["# set aside: !echo it's (", "x = 1"]


class TestCellMagics:
    @pytest.mark.parametrize("magic", ["%%time", "%%capture", "%%capture --no-stderr", "%%prun"])
    def test_a_cell_that_is_timed_or_captured_runs(self, tmp_path: Path, magic: str) -> None:
        assert body(read(tmp_path, f"{magic}\n\nx = 1")) == [f"# set aside: {magic}", "x = 1"]

    def test_one_magic_above_another(self, tmp_path: Path) -> None:
        source = read(tmp_path, "%%capture\n%%time\nx = 1")

        assert body(source) == ["# set aside: %%capture", "# set aside: %%time", "x = 1"]

    def test_a_cell_of_another_language_that_only_shows_is_set_aside_as_a_whole(self, tmp_path: Path) -> None:
        source = read(tmp_path, "%%html\n<b>\n\nbold</b>", "%%bash\nnvidia-smi\nls")

        assert all(line.startswith("# set aside: ") for line in body(source))
        assert hazards(source) == []
        assert [one.partition(":")[0] for one in told(source)] == ["cell 1, line 1", "cell 2, line 1"]

    def test_a_shell_cell_that_changes_something_runs_where_it_stands(self, tmp_path: Path) -> None:
        source = read(tmp_path, "%%bash\necho 'it\"s' > a.txt\necho b >> a.txt", "x = open('a.txt').read()")
        script = tmp_path / "t.py"
        script.write_text(source.text + "print(repr(x))\n")

        answer = python(tmp_path, script)

        assert answer.stdout == "'it\"s\\nb\\n'\n"
        assert hazards(source) == []

    @pytest.mark.parametrize("magic", ["%%python", "%%cython", "%%R", "%%bash --out lines", "%%mine"])
    def test_what_nobody_here_can_run_stands_in_the_way(self, tmp_path: Path, magic: str) -> None:
        source = read(tmp_path, f"{magic}\nx <- 1")

        assert body(source) == [f"# set aside: {magic}", "# set aside: x <- 1"]
        assert len(hazards(source)) == 1

    def test_what_a_cell_prints_is_missed_where_it_is_read(self, tmp_path: Path) -> None:
        assert hazards(read(tmp_path, "%%capture out\nprint(1)", "print(out.stdout)"))
        assert not hazards(read(tmp_path, "%%capture out\nprint(1)", "x = 1"))

    def test_a_file_that_is_there_as_the_cell_writes_it_need_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "helper.py").write_text("def f():\n    pass\n")

        assert not hazards(read(tmp_path, "%%writefile helper.py\ndef f():\n    pass"))
        assert hazards(read(tmp_path, "%%writefile helper.py\ndef g():\n    pass"))
        assert hazards(read(tmp_path, "%%writefile -a helper.py\ndef f():\n    pass"))
        assert hazards(read(tmp_path, "%%writefile other.py\ndef f():\n    pass"))


class TestNames:
    def test_bars_are_those_of_a_terminal(self, tmp_path: Path) -> None:
        source = read(
            tmp_path,
            "from tqdm.notebook import tqdm, trange\nfrom tqdm import tqdm_notebook as bar, tqdm_notebook\n"
            "import tqdm\ntqdm.notebook.tqdm([]); tqdm.tqdm_notebook([])",
        )

        assert body(source) == [
            "from tqdm.auto import tqdm, trange",
            "from tqdm import tqdm as bar, tqdm as tqdm_notebook",
            "import tqdm",
            "tqdm.auto.tqdm([]); tqdm.tqdm([])",
        ]

    def test_ipython_is_not_needed_and_display_prints(self, tmp_path: Path) -> None:
        source = read(
            tmp_path,
            "import IPython\nfrom IPython.display import (HTML,\n    display as show, clear_output)\n"
            "from IPython import display as ipd\nfrom google.colab import drive\n"
            "from IPython.core.interactiveshell import InteractiveShell",
            "InteractiveShell.ast_node_interactivity = 'all'\ndrive.mount('/x')\nclear_output(wait=True)\n"
            "show(3, HTML('<b>')); display('four'); ipd.display(ipd.HTML('x')); ipd.clear_output()\n"
            "bar = ipd.IntProgress(max=3); bar.value += 1\nprint(get_ipython())",
        )
        script = tmp_path / "t.py"
        script.write_text(source.text)

        answer = python(tmp_path, "-I", script)

        assert answer.stdout == "3\nfour\nNone\n"
        assert (
            str(source.place(source.text.splitlines().index("print(get_ipython())") + 1)) == "cell 2, line 6"
        )

    def test_what_its_author_tries_stays(self, tmp_path: Path) -> None:
        code = "try:\n    import google.colab\n    shell = get_ipython().__class__\nexcept Exception:\n    shell = None"

        source = read(tmp_path, code)

        assert body(source) == code.splitlines()
        assert "def get_ipython" not in source.text

    @pytest.mark.parametrize(
        "code", ["get_ipython().kernel.do_shutdown(True)", "exit", "from google.colab import userdata"]
    )
    def test_what_only_a_notebook_knows_stands_in_the_way(self, tmp_path: Path, code: str) -> None:
        (said,) = hazards(read(tmp_path, f"import asyncio\n{code}"))

        assert said.startswith("cell 1, line 2: ")

    def test_await_outside_of_a_function_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="cell 1, line 2:.*'await' outside function"):
            read(tmp_path, "import asyncio\nawait f()")

    def test_await_inside_of_a_function_and_names_of_its_own_are_python(self, tmp_path: Path) -> None:
        code = (
            "async def f():\n    await g()\n_, Out = 1, [2]\nprint(Out[0], _)\nfor _ in range(2):\n    pass"
        )

        assert told(read(tmp_path, code)) == []

    def test_figures_open_no_window(self, tmp_path: Path) -> None:
        text = read(tmp_path, "import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()").text

        assert text.index('os.environ.setdefault("MPLBACKEND", "Agg")') < text.index("import matplotlib")


class TestOrder:
    def test_cells_that_ran_in_another_order_are_told(self, tmp_path: Path) -> None:
        (said,) = told(read(tmp_path, "a = 1", "b = 2", "c = 3", counts=(5, 2, 9)))

        assert said.startswith("cell 2, line 1: the cells were last run in another order")
        assert "5, 2, 9" in said

    def test_a_cell_that_did_not_run_is_told(self, tmp_path: Path) -> None:
        (said,) = told(read(tmp_path, "a = 1", "b = 2", "c = 3", counts=(1, None, 2)))

        assert said.startswith("cell 2, line 1: not run")

    @pytest.mark.parametrize("counts", [(1, 4, 9), (None, None, None)], ids=["in order", "never run"])
    def test_gaps_and_a_fresh_notebook_are_nothing(
        self, tmp_path: Path, counts: tuple[int | None, ...]
    ) -> None:
        assert told(read(tmp_path, "a = 1", "b = 2", "c = 3", counts=counts)) == []


SNIPPETS = (
    "x = 1", "!ls", "%time y = 2", "%%time\nz = 3\n", "names = !ls", "for i in [1]:\n    !echo {i} > a\n", "len?",
    "%%bash\nls > a", "from __future__ import annotations", "from IPython.display import *", "'''\n%env A=1\n'''",
    "from tqdm.notebook import tqdm\r\nw = 4", "from IPython.display import (HTML,\n  clear_output)\nHTML()",
    "%cd\n\n\n", "# a comment\n\nf(\n)", "md:prose", "", "    v = 1\n    if v:\n        !ls",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_any_cells_make_a_script_whose_lines_are_theirs(tmp_path: Path, seed: int) -> None:
    cells = random.Random(seed).choices(SNIPPETS, k=6)
    code = [one for one in cells if one.strip() and not one.startswith("md:")]

    source = read(tmp_path, *cells)

    assert source.cells
    compile(source.text, "t.py", "exec")
    assert [one.lines for one in source.cells.cells] == [len(one.splitlines()) for one in code]
    ends = [source.place(one.first + one.lines - 1) for one in source.cells.cells]
    assert [(one.cell, one.line) for one in ends] == [
        (n, len(one.splitlines())) for n, one in enumerate(code, 1)
    ]


class TestRefused:
    def test_an_open_bracket_ends_with_its_cell(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"t\.ipynb, cell 2, line 1: '\(' was never closed"):
            read(tmp_path, "md:prose", "a = 1", "x = (1,", "2)")

    def test_cells_that_are_no_script_together(self, tmp_path: Path) -> None:
        with pytest.raises(
            SourceError, match=r"t\.ipynb, cell 2, line 2: .*before global declaration \(in a script"
        ):
            read(tmp_path, "best = 0", "\nglobal best\nbest = 1")

    def test_python_2_is_told_with_its_cell(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"t\.ipynb, cell 2, line 2: Python 2"):
            read(tmp_path, "a = 1", "b = 2\nprint a")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{", "not a notebook"),
            ("[]", "not a notebook"),
            ("", "not a notebook"),
            ('{"nbformat": 4, "nbformat_minor": 4, "metadata": {}}', "not a notebook"),
            ('{"cells": [], "nbformat": 4, "nbformat_minor": 4, "metadata": {}}', "a notebook without code"),
        ],
    )
    def test_what_is_no_notebook(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "t.ipynb"
        path.write_text(text)

        with pytest.raises(SourceError, match=words) as error:
            read_source(path)

        assert "\n" not in str(error.value)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "t.ipynb"
        path.write_bytes(b"\xff\xfe\x00")

        with pytest.raises(SourceError, match="no UTF-8"):
            read_source(path)

    @pytest.mark.parametrize(
        "metadata", [{"kernelspec": {"language": "R"}}, {"language_info": {"name": "julia"}}]
    )
    def test_another_language(self, tmp_path: Path, metadata: dict[str, dict[str, str]]) -> None:
        path = notebook(tmp_path, "x <- 1", metadata=metadata)

        with pytest.raises(SourceError, match="a notebook in (R|julia); dp2ddp converts Python"):
            read_source(path)

    def test_an_old_notebook_is_read(self, tmp_path: Path) -> None:
        cell = {"cell_type": "code", "input": ["a = 1\n", "b = 2"], "language": "python", "outputs": [],
                "collapsed": False, "metadata": {}, "prompt_number": 3}  # fmt: skip
        old = {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0,
               "worksheets": [{"cells": [cell], "metadata": {}}]}  # fmt: skip
        path = tmp_path / "t.ipynb"
        path.write_text(json.dumps(old))

        assert body(read_source(path)) == ["a = 1", "b = 2"]
