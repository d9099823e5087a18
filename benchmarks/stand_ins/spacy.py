"""Splits at spaces."""


class Token:
    def __init__(self, text):
        self.text = text


def blank(name):
    return lambda text: [Token(word) for word in text.split()]
