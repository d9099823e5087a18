"""Calls as libcst has them, with arguments taken out, given, or passed on to a helper."""

import libcst as cst

SPACE = cst.SimpleWhitespace(" ")
NONE = cst.SimpleWhitespace("")


def with_argument(call: cst.Call, keyword: str, value: cst.BaseExpression) -> cst.Call:
    """A keyword argument behind the others; a comma behind the last one stays behind the last one."""
    given = cst.Arg(value, keyword=cst.Name(keyword), equal=cst.AssignEqual(NONE, NONE))
    if not call.args:
        return call.with_changes(args=[given])
    *others, last = call.args
    given = given.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    last = last.with_changes(
        value=in_brackets(last.value), comma=cst.Comma(whitespace_after=SPACE), whitespace_after_arg=NONE
    )
    return call.with_changes(args=[*others, last, given])


def without_arguments(call: cst.Call, dropped: set[int]) -> cst.Call:
    """The arguments at these places go, each with the comma behind it, the last one with the comma before it."""
    kept: list[cst.Arg] = []
    for index, argument in enumerate(call.args):
        if index not in dropped:
            kept.append(argument)
        elif kept:
            end = {"comma": argument.comma, "whitespace_after_arg": argument.whitespace_after_arg}
            kept[-1] = kept[-1].with_changes(**end)
    if not kept:
        return call.with_changes(args=[], whitespace_before_args=NONE)
    return call.with_changes(args=kept)


def passed_to(call: cst.Call, helper: cst.BaseExpression) -> cst.Call:
    """`helper(f, a)` of `f(a)`."""
    before = call.whitespace_before_args
    if not call.args:
        only = cst.Arg(call.func, whitespace_after_arg=before)
        return call.with_changes(
            func=helper, args=[only], whitespace_after_func=NONE, whitespace_before_args=NONE
        )
    first, *others = call.args
    first = first.with_changes(value=in_brackets(first.value))
    function = cst.Arg(call.func, comma=cst.Comma(whitespace_after=_behind_comma(before)))
    return call.with_changes(
        func=helper, args=[function, first, *others], whitespace_after_func=NONE, whitespace_before_args=NONE
    )


def _behind_comma(before: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """What stood behind the bracket, with a blank unless a line ends there."""
    if isinstance(before, cst.SimpleWhitespace) and not before.value.startswith(("\r", "\n")):
        return cst.SimpleWhitespace(f" {before.value}")
    return before


def in_brackets(value: cst.BaseExpression) -> cst.BaseExpression:
    """A generator that was the only argument needs brackets of its own beside others."""
    if isinstance(value, cst.GeneratorExp) and not value.lpar:
        return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return value


def argument_in_place(new: cst.Arg, old: cst.Arg) -> cst.Arg:
    """What stands around an argument belongs to its place."""
    return new.with_changes(comma=old.comma, whitespace_after_arg=old.whitespace_after_arg)
