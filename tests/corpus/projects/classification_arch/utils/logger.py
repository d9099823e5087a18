import os

__all__ = ['Logger']


class Logger(object):
    def __init__(self, fpath, resume=False):
        self.file = open(fpath, 'a' if resume and os.path.exists(fpath) else 'w')
        self.names = []

    def set_names(self, names):
        self.names = names
        self.file.write('\t'.join(names) + '\n')
        self.file.flush()

    def append(self, numbers):
        assert len(self.names) == len(numbers)
        self.file.write('\t'.join('{0:.6f}'.format(num) for num in numbers) + '\n')
        self.file.flush()

    def close(self):
        self.file.close()
