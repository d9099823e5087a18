"""docs/contributing.md: its two rules, put into dp2ddp for a test, do what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from dp2ddp.cli.check import command as check
from dp2ddp.cli.convert import command as convert
from dp2ddp.codemod import rules as conversion_package
from dp2ddp.codemod.rule import Rule, all_rules, rules_of_style
from dp2ddp.review import rules as check_package
from dp2ddp.review.check_rule import CheckRule, check_rules
from tests.codemod import test_rules as of_the_conversion
from tests.review import test_rules as of_the_check
from tests.test_docs_code import DOCS, blocks, without_blanks

PAGE = DOCS / "contributing.md"
FILES = re.findall(
    r"^```python\n# (dp2ddp/\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
SCRIPT = """\
import torch

torch.set_num_threads(16)
net = torch.nn.DataParallel(torch.nn.Linear(8, 1).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    net(torch.randn(4, 8)).mean().backward()
    optimizer.step()
"""
CACHES = (rules_of_style, check_rules)


@pytest.fixture
def page_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Rule, CheckRule]]:
    """The rules of the page, in a folder that the packages of rules have as well."""
    folder = tmp_path / "rules"
    folder.mkdir()
    for path, text in FILES:
        (folder / Path(path).name).write_text(text, encoding="utf-8")
    packages = {"ddp1": conversion_package, "ddp6": check_package}
    for start, package in packages.items():
        own = tmp_path / start
        own.mkdir()
        for file in folder.glob(f"{start}*.py"):
            file.rename(own / file.name)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(own)])
    before = set(sys.modules)
    clear()
    try:
        (rule,) = [one for one in all_rules() if one.code == "DDP199"]
        (check_rule,) = [one for one in check_rules() if one.code == "DDP699"]
        yield rule, check_rule
    finally:
        monkeypatch.undo()
        clear()
        for name in sys.modules.keys() - before:
            if "ddp199" in name or "ddp699" in name:
                del sys.modules[name]


def clear() -> None:
    for cache in CACHES:
        cache.cache_clear()


def test_the_page_has_a_rule_of_each_kind() -> None:
    assert [Path(path).parent.as_posix() for path, _ in FILES] == [
        "dp2ddp/codemod/rules",
        "dp2ddp/review/rules",
    ]


def test_both_hold_what_is_asked_of_every_rule(page_rules: tuple[Rule, CheckRule]) -> None:
    for rule, tests in zip(page_rules, (of_the_conversion, of_the_check), strict=True):
        for example in rule.examples:
            tests.test_an_example_holds(rule, example)
        of_every_rule(rule, tests)


def of_every_rule(rule: Rule | CheckRule, tests: ModuleType) -> None:
    every = tests.TestEveryRule()
    for name in (name for name in dir(every) if name.startswith("test_") and "fresh" not in name):
        getattr(every, name)(rule)


def test_convert_prints_the_diff_of_the_page(
    page_rules: tuple[Rule, CheckRule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    printed = CliRunner().invoke(convert, ["train.py", "--diff"]).stdout
    assert without_blanks(shown("diff")) == without_blanks(printed)


def test_check_prints_what_the_page_shows(
    page_rules: tuple[Rule, CheckRule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = page_rules[1]
    Path("train.py").write_text(of_the_check.code_of(rule.examples[0].before))
    printed = CliRunner().invoke(check, ["train.py"]).stdout
    assert printed == shown("")


def shown(language: str) -> str:
    """The page's only block of a language."""
    (block,) = (block for block in blocks(PAGE) if block.language == language)
    return block.text
