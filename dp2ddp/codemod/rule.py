"""What a rule is: one file with a code, a page (its docstring), examples (its tests) and a local look at the model."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import ClassVar, TypeVar

from dp2ddp.codemod.edits import Finding, PassTo, Replace
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.errors import refuse_unknown_codes
from dp2ddp.styles import STYLES

# Where the rules of each style are: a rule exists by being a file there.
PACKAGES = {"exact": "dp2ddp.codemod.rules", "idiomatic": "dp2ddp.codemod.idiomatic"}
HEADINGS = ("What it does", "Why", "Safety", "References")


@dataclass(frozen=True)
class Rewrites:
    """The rule turns `before` into `after` (without imports, lifted helpers and the join)."""

    before: str
    after: str


def diff(text: str) -> Rewrites:
    """The same, as a diff of whole lines: `- ` those of before, `+ ` those of after."""
    lines = code_of(text).splitlines()
    before, after = ("\n".join(line[2:] for line in lines if line[:1] != other) for other in "+-")
    return Rewrites(before, after)


@dataclass(frozen=True)
class Flags:
    """The rule reports hazards: for each of the messages one whose text holds it."""

    before: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Notes:
    """The rule changes nothing and leaves notes: for each of the messages one whose text holds it."""

    before: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Untouched:
    """The rule has nothing to say."""

    before: str


def flags(text: str) -> Flags:
    """Hazards; the first lines, comments, are what their texts hold."""
    return Flags(*_with_messages(text))


def notes(text: str) -> Notes:
    """Notes, in the same way."""
    return Notes(*_with_messages(text))


def _with_messages(text: str) -> tuple[str, tuple[str, ...]]:
    lines = code_of(text).splitlines()
    messages = [
        *takewhile(lambda line: line.startswith("# ") and line != "# %%", lines)
    ]  # a cell begins by that
    before = "\n".join(lines[len(messages) :]) + "\n"
    return before, tuple(each.removeprefix("# ") for each in messages)


Example = Rewrites | Flags | Notes | Untouched


class DescribedRule:
    """A rule of which its file says the rest: `ddp601_no_set_epoch.py` has the code DDP601 and the name no-set-epoch.

    Its page is the docstring of the file (of the class, where a file has several): a title, then a paragraph a heading,
    which a list may belong to. Its examples are its tests.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    about: ClassVar[str]  # the line of its page between the title and the text
    examples: ClassVar[tuple[Example, ...]]
    flagged_as: ClassVar[str]  # what its page calls the finding of a `Flags`

    def __init_subclass__(cls) -> None:
        code, _, words = cls.__module__.rpartition(".")[2].partition("_")
        if code.startswith("ddp"):
            cls.code, cls.name = code.upper(), words.replace("_", "-")

    @classmethod
    def summary(cls) -> str:
        return cls.page().partition("\n")[0]

    @classmethod
    def page(cls) -> str:
        text = inspect.cleandoc(cls.__doc__ or sys.modules[cls.__module__].__doc__ or "")
        title, *parts = re.split(r"\n\n(?!- )", text)
        headed = (f"## {heading}\n{part}" for heading, part in zip(HEADINGS, parts, strict=True))
        return "\n\n".join((title, *headed))


def rule_text(rule: DescribedRule) -> str:
    """What `dp2ddp rules CODE` prints: title, docstring, examples."""
    lines = [f"# {rule.code} {rule.name}", "", rule.about, "", rule.page(), "", "## Examples"]
    for example in rule.examples:
        lines += ["", *_example(rule, example)]
    return "\n".join(lines) + "\n"


def _example(rule: DescribedRule, example: Example) -> Iterator[str]:
    before = code_of(example.before).splitlines()
    if isinstance(example, Rewrites):
        import difflib  # which no check needs

        whole = difflib.unified_diff(before, code_of(example.after).splitlines(), lineterm="", n=1000)
        yield from ("```diff", *[*whole][3:], "```")  # without file names and line numbers
        return
    heading = "Left alone"
    if isinstance(example, (Flags, Notes)):
        what = rule.flagged_as if isinstance(example, Flags) else "A note"
        heading = f"{what} (“{'”, “'.join(example.messages)}”)"
    yield from (f"{heading}:", "```python", *before, "```")


class Rule(DescribedRule):
    """A rule of the conversion. Subclasses are final: one a file, named after what is found."""

    about = "`dp2ddp convert` follows it."
    flagged_as = "A hazard"
    everywhere: ClassVar[bool] = False  # also where nothing runs

    def look(self, module: Module) -> Iterator[Finding]:
        """Edits, hazards and notes for one file; reads the model, changes nothing."""
        raise NotImplementedError


AnyRule = TypeVar("AnyRule", bound=DescribedRule)


@lru_cache
def rules_of_style(style: str) -> tuple[Rule, ...]:
    """The rules that a style has of its own, by code."""
    return tuple(rules_in(PACKAGES[style], Rule))


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is, of all styles, by code."""
    rules = (rule for style in STYLES for rule in rules_of_style(style))
    return tuple(sorted(rules, key=lambda rule: rule.code))


def rules_in(package: str, kind: type[AnyRule]) -> list[AnyRule]:
    """The rules of a kind, by code: a rule exists by standing in a file of a package."""
    files = pkgutil.iter_modules(importlib.import_module(package).__path__)
    members = [
        each for file in files for each in vars(importlib.import_module(f"{package}.{file.name}")).values()
    ]
    kinds = {each for each in members if isinstance(each, type) and issubclass(each, kind)}
    own = (each() for each in kinds if each.__module__.startswith(package) and hasattr(each, "code"))
    return sorted(own, key=lambda rule: rule.code)


def pick_rules(rules: Sequence[Rule], select: tuple[str, ...], ignore: tuple[str, ...]) -> list[Rule]:
    """Those of a style's rules that the user wants; codes may be families (`DDP5`)."""
    refuse_unknown_codes((*select, *ignore), (rule.code for rule in rules))
    selected = [rule for rule in rules if not select or rule.code.startswith(select)]
    return [rule for rule in selected if not ignore or not rule.code.startswith(ignore)]


def rename(node: ast.AST, helper: str, because: str | Reason) -> Replace:
    """What is named here is the helper from now on."""
    return Replace(node, helper, because, helpers=(helper,))


def rebase(node: ast.expr, helper: str, because: str | Reason) -> Replace:
    """A library's class that is named here derives from the helper from now on."""
    code = f"rebase({{kind}}, {helper})"
    return Replace(node, code, because, {"kind": node}, helpers=("rebase", helper))


def call_by(node: ast.Call, helper: str, because: str) -> PassTo:
    """`f(x)` becomes `helper(f, x)`."""
    return PassTo(node, helper, because, helpers=(helper,))


def hand_on(module: Module, node: ast.expr, helper: str, because: str) -> Replace:
    """A function that is handed on is called by the helper, whoever calls it."""
    code = "(lambda *args, **kwargs: {helper}({{it}}, *args, **kwargs))"
    kept = module.parents[node]
    if isinstance(kept, (ast.Assign, ast.AnnAssign)) and isinstance(module.parents[kept], ast.ClassDef):
        code = f"staticmethod{code}"  # else it would be a method, and get `self`
    return Replace(node, code.format(helper=helper), because, {"it": node}, helpers=(helper,))


def code_of(example: str) -> str:
    """The text of an example as a script; without textwrap, which costs a check's start more than all of this file."""
    lines = [line if line.strip() else "" for line in example.split("\n")]
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line), default=0)
    return "\n".join(line[indent:] for line in lines).strip("\n") + "\n"
