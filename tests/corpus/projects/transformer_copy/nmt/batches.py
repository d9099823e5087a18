import torch

__all__ = ['Batches']


class Batch:
    def __init__(self, src, pad=0):
        self.src = src
        self.src_mask = (src != pad).unsqueeze(-2)
        self.trg_y = src[:, 1:]
        self.ntokens = (self.trg_y != pad).sum()


class Batches:
    def __init__(self, vocab, rows, count):
        self.vocab, self.rows, self.count = vocab, rows, count

    def __iter__(self):
        for i in range(self.count):
            src = torch.randint(1, self.vocab, (self.rows - 2 * i, 6))
            src[:, 0] = 1
            src[i + 1:, 4:] = 0
            yield Batch(src.cuda())
