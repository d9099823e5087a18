"""A rule's page, made from its docstring and its examples."""

import difflib
from collections.abc import Iterator

from dp2ddp.codemod.rule import DescribedRule, Example, Flags, Notes, Rewrites, code_of


def rule_text(rule: DescribedRule) -> str:
    """What `dp2ddp rules CODE` prints: title, docstring, examples."""
    lines = [f"# {rule.code} {rule.name}", "", rule.about(), "", rule.page(), "", "## Examples"]
    for example in rule.examples:
        lines += ["", *_example(rule, example)]
    return "\n".join(lines) + "\n"


def _example(rule: DescribedRule, example: Example) -> Iterator[str]:
    before = code_of(example.before).splitlines()
    if isinstance(example, Rewrites):
        whole = difflib.unified_diff(before, code_of(example.after).splitlines(), lineterm="", n=1000)
        yield from ("```diff", *[*whole][3:], "```")  # without file names and line numbers
        return
    heading = "Left alone"
    if isinstance(example, (Flags, Notes)):
        what = rule.flagged_as if isinstance(example, Flags) else "A note"
        heading = f"{what} (“{'”, “'.join(example.messages)}”)"
    yield from (f"{heading}:", "```python", *before, "```")
