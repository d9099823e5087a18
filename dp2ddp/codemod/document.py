"""A rule's page, made from its docstring and its examples."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from dp2ddp.codemod.rule import DescribedRule, Example, Flags, Notes, Rewrites, code_of

GENERATED = "<!-- Made when the site is built; edit the rule, not this page. -->"


_DOCUMENT = re.compile(r"(?<![\w/])docs/([\w/-]+\.md(?:#[\w-]+)?)")


def rule_page(rule: DescribedRule) -> str:
    """A page of the site, Markdown: the rule's text, with links to the documents that it names."""
    text, heading, examples = rule_text(rule).partition("\n## Examples\n")
    return f"{GENERATED}\n{_DOCUMENT.sub(_link, text)}{heading}{examples}"


def _link(document: re.Match[str]) -> str:
    """`docs/semantics.md#order` as a link from a rule's page."""
    return f"[{document[0]}](../{document[1]})"


def rule_text(rule: DescribedRule) -> str:
    """What `dp2ddp rules CODE` prints: title, docstring, examples."""
    lines = [f"# {rule.code} {rule.name}", "", rule.about(), "", rule.page(), "", "## Examples"]
    for example in rule.examples:
        lines += ["", *_example(rule, example)]
    return "\n".join(lines) + "\n"


def _example(rule: DescribedRule, example: Example) -> Iterator[str]:
    before = code_of(example.before)
    if isinstance(example, Rewrites):
        yield "```diff"
        yield from _whole_diff(before, code_of(example.after))
    elif isinstance(example, (Flags, Notes)):
        said = "”, “".join(example.messages)
        yield f"{rule.flagged_as if isinstance(example, Flags) else 'A note'} (“{said}”):"
        yield "```python"
        yield from before.splitlines()
    else:
        yield "Left alone:"
        yield "```python"
        yield from before.splitlines()
    yield "```"


def _whole_diff(before: str, after: str) -> list[str]:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1000))
    return lines[3:]  # without file names and line numbers


# What the hundreds of the codes stand for.
_FAMILIES = {
    "1": "Process and device",
    "2": "Model",
    "3": "Data",
    "4": "Gradients and metrics",
    "5": "What the script writes",
    "6": "Mistakes in DDP code, found by `dp2ddp check`",
    "7": "What the idiomatic style writes, and what it says",
    "9": "Hazards: what stands in the way",
}


def list_of_rules(rules: Iterable[DescribedRule]) -> str:
    """The page that lists the others, Markdown."""
    lines = [GENERATED, "# Rules", "", "`dp2ddp rules` prints this list, `dp2ddp rules CODE` a page."]
    for family, ordered in groupby(sorted(rules, key=lambda rule: rule.code), key=lambda rule: rule.code[3]):
        lines += ["", f"## {_FAMILIES[family]}", ""]
        lines += [f"- [{rule.code} {rule.name}]({rule.code}.md): {rule.summary()}" for rule in ordered]
    return "\n".join(lines) + "\n"


def pages_of_rules(rules: Sequence[DescribedRule]) -> dict[str, str]:
    """A page for each rule, and README.md that lists them: texts by file name."""
    return {f"{rule.code}.md": rule_page(rule) for rule in rules} | {"README.md": list_of_rules(rules)}
