"""Plots in a browser: nothing is shown."""


class Visdom:
    def __init__(self, *given, **named):
        pass
