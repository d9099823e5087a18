"""Gives its argument."""


def fix_text(text):
    return text
