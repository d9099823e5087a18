"""A function is replaced once; who subscribes last is outermost; and all comes back as it was."""

from __future__ import annotations

import functools
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from dp2ddp.taps import Inside, Taps, in_all_threads


class Base:
    """A class of torch's, say."""

    def call(self, x: int) -> int:
        return x + 1

    @staticmethod
    def static(x: int) -> int:
        return 2 * x

    @classmethod
    def of_class(cls, x: int) -> tuple[str, int]:
        return cls.__name__, x


def plain(x: int, *, factor: int = 1) -> int:
    return factor * x


def module(name: str = "made_up", **functions: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(functions)
    return made


def test_before_and_after_see_what_is_given_and_what_comes_back() -> None:
    told: list[Any] = []
    owner, taps = module(plain=plain), Taps()
    taps.before("plain", lambda x, **more: told.append((x, more)), owner)
    taps.after("plain", lambda result, x, **more: told.append((result, x)), owner)
    assert owner.plain(3, factor=2) == 6
    assert told == [(3, {"factor": 2}), (6, 3)]


def test_the_last_is_outermost_and_the_function_is_replaced_once() -> None:
    told: list[str] = []
    owner, taps = module(plain=plain), Taps()
    taps.before("plain", lambda x: told.append("first"), owner)
    there = owner.plain
    taps.around("plain", lambda function, x: -function(x + 1), owner)
    taps.before("plain", lambda x: told.append("last"), owner)
    assert owner.plain is there
    assert owner.plain(1) == -2
    assert told == ["last", "first"]
    assert (there.__name__, there.__wrapped__) == ("plain", plain)


def test_a_keyword_may_have_any_name() -> None:
    owner, told = module(add=lambda function, call: function + call), list[int]()
    taps = Taps()
    taps.before("add", lambda function, call: told.append(function), owner)
    taps.after("add", lambda result, function, call: told.append(result), owner)
    assert owner.add(function=1, call=2) == 3
    assert told == [1, 3]


def test_what_raises_before_keeps_the_function_from_being_called() -> None:
    told: list[int] = []
    owner = module(add=told.append)
    Taps().before("add", lambda x: 1 / x, owner)
    with pytest.raises(ZeroDivisionError):
        owner.add(0)
    assert told == []


def test_one_who_leaves_takes_nobody_with_him() -> None:
    owner, first, second = module(plain=plain), Taps(), Taps()
    first.around("plain", lambda function, x: function(x) + 10, owner)
    second.around("plain", lambda function, x: function(x) + 100, owner)
    second.undo()
    assert owner.plain(1) == 11
    first.undo()
    assert owner.plain is plain


def test_methods_of_all_kinds_and_their_classes_come_back_as_they_were() -> None:
    before, taps = dict(vars(Base)), Taps()
    for name in ("call", "static", "of_class"):
        taps.after(name, lambda result, *args: None, Base)
    assert (Base().call(1), Base.static(2), Base().static(3)) == (2, 4, 6)
    assert Base.of_class(4) == Base().of_class(4) == ("Base", 4)
    taps.undo()
    assert {name: vars(Base)[name] for name in before} == before


def test_a_base_class_hears_nothing_of_who_follows_one_that_derives_from_it() -> None:
    class Derived(Base):
        pass

    told, taps = list[str](), Taps()
    taps.before("call", lambda *args: told.append("base"), Base)
    taps.before("call", lambda *args: told.append("derived"), Derived)
    try:
        Base().call(1)
        assert told == ["base"]
        Derived().call(1)
        assert told == ["base", "derived", "base"]
    finally:
        taps.undo()
    assert "call" not in vars(Derived)


def test_a_scripts_own_wrapper_is_no_tap() -> None:
    told: list[str] = []
    owner = module(plain=plain)
    Taps().before("plain", lambda x: told.append("ours"), owner)
    replaced = owner.plain

    @functools.wraps(replaced)
    def scripts(x: int) -> int:
        told.append("script's")
        return int(replaced(x))

    owner.plain = scripts  # type: ignore[attr-defined]
    Taps().before("plain", lambda x: told.append("later"), owner)
    assert owner.plain(1) == 1
    assert told == ["later", "script's", "ours"]


def test_modules_that_took_a_function_before_get_the_tap(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, other, strange = module(plain=plain), module("other", plain=plain), module("strange", plain=str)
    for each in (other, strange):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    Taps().everywhere(owner, {"plain": lambda function, x: -function(x), "not_there": lambda function: None})
    assert other.plain(1) == owner.plain(1) == -1
    assert strange.plain is str


class Mode:
    """A mode that is on in the threads that entered it."""

    def __init__(self) -> None:
        self._here = threading.local()

    def __enter__(self) -> None:
        self._here.on = True

    def __exit__(self, *error: object) -> None:
        self._here.on = False

    def is_on(self) -> bool:
        return getattr(self._here, "on", False)

    def is_on_in_a_new_thread(self) -> bool:
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(self.is_on()))
        thread.start()
        thread.join()
        return seen[0]


def test_modes_are_entered_here_and_in_threads_that_start_later() -> None:
    mode, taps = Mode(), Taps()
    in_all_threads(taps, [mode])
    assert (mode.is_on(), mode.is_on_in_a_new_thread()) == (True, True)
    taps.undo()
    assert (mode.is_on(), mode.is_on_in_a_new_thread()) == (False, False)


def test_inside_is_of_one_thread_and_ends_with_an_error() -> None:
    inside = Inside()
    seen: list[bool] = []

    def fail() -> None:
        with inside.entered():
            thread = threading.Thread(target=lambda: seen.append(inside.yes))
            thread.start()
            thread.join()
            seen.append(inside.yes)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [*seen, inside.yes] == [False, True, False]
