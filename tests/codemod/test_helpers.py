"""The module with the helpers: made, added to, never broken for a script that was there before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperModule, HelperPlace, edition, helper_module, module_text
from dp2ddp.codemod.lift import Library
from dp2ddp.errors import ConversionError, SourceError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project
from tests.codemod.scripts import converted

LIBRARY = Library()
SMALL, LARGE = {"init_distributed"}, {"save_on_rank0", "WholeBatchParallel"}
PLACE = Path("ddp_helpers.py")


def module(text: str, *helpers: str, renew: bool = False) -> HelperModule:
    return helper_module(SourceFile(PLACE, text), set(helpers), LIBRARY, is_there=bool(text), renew=renew)


def definitions(text: str) -> dict[str, str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: ast.unparse(node) for node in ast.parse(text).body if isinstance(node, kinds)}


def test_a_new_module_holds_what_is_asked_for_and_all_that_it_needs() -> None:
    made = module("", *SMALL)

    assert made.is_new
    assert made.changed
    found = definitions(made.after)
    assert found.keys() >= SMALL
    assert "show_error" in found  # init_distributed calls it
    assert "WholeBatchParallel" not in found


def test_another_script_adds_what_it_lacks_and_takes_nothing_away() -> None:
    first = module("", *SMALL).after
    second = module(first, *LARGE)

    assert second.after == module_text(SMALL | LARGE, LIBRARY)
    assert definitions(first).items() <= definitions(second.after).items()
    assert set(second.added) == LARGE
    assert module(second.after, *SMALL).after == second.after


def test_what_its_owner_changed_stays_and_is_told() -> None:
    mine = (
        module("", *SMALL).after.replace(
            "def end_distributed() -> None:\n", "def end_distributed() -> None:\n    # mine\n"
        )
        + "\n\ndef mine():\n    return 1\n"
    )
    assert "# mine" in mine

    more = module(mine, *LARGE)

    assert more.kept == ("end_distributed",)
    assert more.after.count("# mine") == more.after.count("def end_distributed()") == 1
    assert definitions(mine).items() <= definitions(more.after).items()
    compile(more.after, "ddp_helpers.py", "exec")
    assert definitions(module("", *SMALL, *LARGE).after).keys() <= definitions(more.after).keys()
    assert module(more.after, *LARGE).after == more.after


def test_imports_that_an_addition_needs_are_added_to_a_changed_module() -> None:
    more = module(module("", *SMALL).after + "\nMINE = 1\n", *LARGE).after
    bound = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.parse(more).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert {"contextmanager", "WeakSet"} <= bound


class TestAnotherEdition:
    """Of another version of dp2ddp, which may mean something else by the same name."""

    def of_another_edition(self) -> str:
        text = module("", *SMALL).after.replace(edition(), "00000000")
        return text.replace("def end_distributed() -> None:", "def end_distributed() -> int:")

    def test_it_is_not_added_to(self) -> None:
        with pytest.raises(ConversionError, match="another version of dp2ddp wrote it.*--force"):
            module(self.of_another_edition(), *LARGE)

    def test_it_serves_what_it_holds_word_for_word(self) -> None:
        text = module("", *SMALL).after.replace(edition(), "00000000")
        assert module(text, *SMALL).after == text

    def test_it_is_written_anew_though_its_helpers_take_other_arguments(self) -> None:
        text = self.of_another_edition().replace(
            "def init_distributed()", "def init_distributed(map_location=None)"
        )
        assert definitions(module(text, *SMALL, renew=True).after) == definitions(module_text(SMALL, LIBRARY))

    def test_it_is_written_anew_where_that_is_asked_for(self) -> None:
        renewed = module(self.of_another_edition(), *LARGE, renew=True)
        assert definitions(renewed.after) == definitions(module_text(SMALL | LARGE, LIBRARY))


def test_a_module_of_the_users_own_is_not_touched() -> None:
    with pytest.raises(ConversionError, match="need this name; rename it, or use --one-file or --import"):
        module("def mine(): ...\n", *SMALL)


def test_a_module_that_its_owner_broke_is_an_error_of_one_line() -> None:
    with pytest.raises(SourceError, match="ddp_helpers.py"):
        module(module("", *SMALL).after + "def broken(:\n", *LARGE)


SCRIPT = "import torch\nnet = torch.nn.DataParallel(Net())\ntorch.save(net.state_dict(), 'a.pt')\n"


class TestPasted:
    """--one-file: the helpers stand in the script, among names of its owner's."""

    def pasted(self, text: str) -> Conversion:
        return converted(text, helpers=HelperPlace.IN_SCRIPT)

    def test_the_script_needs_nothing_beside_it(self) -> None:
        conversion = self.pasted(SCRIPT)
        assert conversion.helpers is None
        assert {"WholeBatchParallel", "save_on_rank0"} <= definitions(conversion.after).keys()

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            pytest.param("Rank = 5", "Rank", id="a constant"),
            pytest.param("def own_rank():\n    return 3", "own_rank", id="a function"),
            pytest.param("max = 3", "max", id="a builtin"),
            pytest.param("import numpy as copyreg", "copyreg", id="an import"),
            pytest.param(
                "def f(WholeBatchParallel):\n    return WholeBatchParallel",
                "WholeBatchParallel",
                id="a helper, in a function",
            ),
        ],
    )
    def test_a_name_that_both_have_is_refused(self, line: str, name: str) -> None:
        with pytest.raises(ConversionError, match=f"has its own {name}, and so have the helpers"):
            self.pasted(f"{SCRIPT}{line}\n")

    @pytest.mark.parametrize(
        "line", ["import copyreg", "from torch.nn.parallel import DistributedDataParallel"]
    )
    def test_a_name_that_means_the_same_is_no_clash(self, line: str) -> None:
        assert "class WholeBatchParallel" in self.pasted(f"{line}\n{SCRIPT}").after

    def test_beside_the_script_no_name_clashes(self) -> None:
        after = converted(f"{SCRIPT}Rank = 5\nmax = 3\n", helpers=HelperPlace.BESIDE).after
        assert "from ddp_helpers import WholeBatchParallel, init_distributed, save_on_rank0\n" in after


def test_a_converted_script_with_something_new_gets_what_it_lacks() -> None:
    first = converted("import torch\nnet = torch.nn.DataParallel(Net())\n", helpers=HelperPlace.BESIDE)
    assert first.helpers
    text = first.after + "torch.save(net.module, 'b.pt')\nother = torch.nn.DataParallel(Net())\n"
    project = project_with(text, first.helpers.after)

    second = convert(project, Options())

    assert second.helpers
    assert "from ddp_helpers import save_on_rank0" in second.after
    assert "save_on_rank0" in second.helpers.added
    assert definitions(first.helpers.after).items() <= definitions(second.helpers.after).items()


def project_with(text: str, helpers: str) -> Project:
    return Project(SourceFile(Path("train.py"), text), helpers=SourceFile(PLACE, helpers))


def test_an_empty_package_of_that_name_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    with pytest.raises(ConversionError, match="need this name"):
        helper_module(SourceFile(tmp_path / "__init__.py", ""), SMALL, LIBRARY, is_there=True)


def test_a_namesake_of_a_helper_is_told() -> None:
    mine = module("", *SMALL).after + "\n\ndef save_on_rank0(x):\n    return x\n"
    with pytest.raises(ConversionError, match="its save_on_rank0 takes other arguments"):
        module(mine, *LARGE)
