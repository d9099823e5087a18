"""Where the order of a set may matter; places where only its members or its size do are left in peace."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.orders import address_orders, hash_orders
from tests.codemod.scripts import script_of


def lines_of(code: str) -> list[int]:
    return [node.lineno for node in hash_orders(script_of(code))]


@pytest.mark.parametrize(
    "code",
    [
        "for name in set(names): use(name)",
        "names = list(set(names))",
        "order = [index[n] for n in {n for n in names}]",
        "words = set()\nfor word in words: use(word)",
        "words = set() if start is None else start\nuse(words)",
        "words = start or set()\nindex = dict(zip(words, range(9)))",
        "both = set(a) & set(b)\nfor one in both: use(one)",
        "both = set(a).union(b)\nfirst = next(iter(both))",
        "def vocabulary(lines):\n    words = set()\n    words.update(lines)\n    return words",
        "class A:\n    def f(self):\n        self.w = set()\n    def g(self):\n        return [w for w in self.w]",
        "table['seen'] = set()",
        "key = hash(name)",
        "keys = list(map(hash, names))",
        "names.sort(key=hash)",
        "key = name.__hash__()",
        "by_class = collections.defaultdict(set)",
        "rows = [list(row) for row in map(set, lines)]",
        "kinds = field(default_factory=set)",
        "for name in old.keys() - new.keys(): use(name)",
        "for name in old.keys() & names: use(name)",
        "torch.save({'names': set(names)}, 'x')",
    ],
)
def test_a_walk_is_found_and_so_is_a_set_that_leaves_our_sight(code: str) -> None:
    assert lines_of(code)


@pytest.mark.parametrize(
    "code",
    [
        "names = sorted(set(names))",
        "count = len(set(labels))",
        "for i in {1, 2, 3}: use(i)",
        "seen = set()\nif name not in seen:\n    seen.add(name)",
        "seen = set()\nseen.update(names)\nprint(len(seen))",
        "assert set(a) <= set(b)",
        "if set(a) - set(b): raise ValueError",
        "ok = isinstance(x, set)",
        "def f(x: set[str]):\n    return len(x)",
        "missing = len(a.keys() - b.keys())",
        "class A:\n    def __hash__(self):\n        return 1",
        "lower = {n.lower() for n in set(names)}\nok = name in lower",
        "if any(n.startswith('x') for n in set(names)): use(1)",
        "class A:\n    def f(self):\n        self.done = set()\n    def g(self, i):\n        return i in self.done",
    ],
)
def test_members_and_sizes_have_no_order(code: str) -> None:
    assert lines_of(code) == []


@pytest.mark.parametrize(
    "code",
    [
        "decay = set(net.parameters()) - biases\nfor p in decay: p.grad.add_(torch.randn_like(p))",
        "biases = {p for n, p in net.named_parameters() if n.endswith('bias')}\ngroups = list(biases)",
        "for m in {m for m in net.modules()}: reset(m)",
        "others = list(set(filter(wanted, net.parameters())))",
    ],
)
def test_sets_of_parameters_have_the_order_of_addresses(code: str) -> None:
    assert address_orders(script_of(code))
    assert not lines_of(code)  # which PYTHONHASHSEED does not change


@pytest.mark.parametrize(
    "code",
    [
        "names = list({n for n, p in net.named_parameters()})",
        "biases = set(net.parameters())\nrest = [p for p in every if p not in biases]",
        "ids = set(map(id, head.parameters()))\nbase = filter(lambda p: id(p) not in ids, net.parameters())",
        "names = list(set(labels))",
    ],
)
def test_other_sets_have_not(code: str) -> None:
    assert not address_orders(script_of(code))
