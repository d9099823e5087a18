import os
import sys


class Logger(object):
    def __init__(self, path):
        self.terminal = sys.stdout
        if not os.path.exists(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        self.log = open(path, 'w')

    def write(self, message):
        self.terminal.write(message)
        self.log.write(message)

    def flush(self):
        pass

    def close(self):
        self.log.close()
        sys.stdout = self.terminal


class Plotter:
    """visdom if it is there"""

    def __init__(self):
        self.count = 0
        try:
            from visdom import Visdom
            self.viz = Visdom()
        except ImportError:
            self.viz = None

    def add(self, value):
        self.count += 1
        if self.viz is not None:
            self.viz.line(Y=[value], X=[self.count], win='loss', update='append')
