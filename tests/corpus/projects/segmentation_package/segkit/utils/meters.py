class AverageMeter(object):
    def __init__(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class CSVWriter(object):
    def __init__(self, path):
        self.file = open(path, 'w')
        self.file.write('tag,value,step\n')

    def add(self, tag, value, step):
        self.file.write('{},{:.6f},{}\n'.format(tag, value, step))
        self.file.flush()
