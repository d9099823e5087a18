# corpus: idioms = nn.DataParallel; function main/train/run; new name, raw model kept under another name; unconditional; lr / phase / stop schedule driven by locally counted samples or tokens
# corpus: idioms = own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); mean over a data-dependent count - full batch level (after gather); collate_fn; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA)
# corpus: idioms = shuffle literal True; tqdm/progress bar; argparse; __name__ guard; optimizer created before wrap; sum / none reduction normalised by hand
# corpus: worlds = 2 3 4
"""Reversing sequences; the learning rate depends on the words seen, as does the end of the training."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from tqdm import tqdm


class Reverser(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.src = nn.Embedding(vocab, dim, padding_idx=0)
        self.enc = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.gen = nn.Linear(2 * dim, vocab)

    def forward(self, src):
        return torch.log_softmax(self.gen(self.enc(self.src(src))[0]), dim=-1)


class ScheduledOptim:
    """A wrapper for the learning rate: warmup in words, then decay"""

    def __init__(self, optimizer, base, warmup_words):
        self._optimizer, self.base, self.warmup, self.words = optimizer, base, warmup_words, 0

    def zero_grad(self):
        self._optimizer.zero_grad()

    def step_and_update_lr(self, words):
        self.words += words
        scale = min(self.words / self.warmup, (self.warmup / self.words) ** 0.5)
        for g in self._optimizer.param_groups:
            g['lr'] = self.base * scale
        self._optimizer.step()

    def lr(self):
        return self._optimizer.param_groups[0]['lr']


def collate(rows):
    width = max(len(r) for r in rows)
    src = torch.zeros(len(rows), width, dtype=torch.long)
    tgt = torch.zeros(len(rows), width, dtype=torch.long)
    for i, r in enumerate(rows):
        src[i, :len(r)] = torch.tensor(r)
        tgt[i, :len(r)] = torch.tensor(r[::-1])
    return src, tgt


def sentences(n):
    g = torch.Generator().manual_seed(8)
    return [torch.randint(1, 12, (int(torch.randint(2, 9, (), generator=g)),), generator=g).tolist() for _ in range(n)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-b', '--batch-size', type=int, default=9)
    parser.add_argument('--max-words', type=int, default=700)
    parser.add_argument('--lr', type=float, default=0.02)
    opt = parser.parse_args()
    torch.manual_seed(opt.batch_size)
    loader = DataLoader(sentences(60), batch_size=opt.batch_size, shuffle=True, collate_fn=collate)
    model = Reverser(12, 10).cuda()
    optimizer = ScheduledOptim(torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)), opt.lr, 150)
    model_parallel = nn.DataParallel(model)
    criterion = nn.NLLLoss(ignore_index=0, reduction='sum')
    words, epoch = 0, 0
    while words < opt.max_words:
        model.train()
        epoch_loss, epoch_words = 0., 0
        for src, tgt in tqdm(loader, desc='  - (Training)   ', leave=False, mininterval=2):
            src, tgt = src.cuda(), tgt.cuda()
            n = tgt.ne(0).sum().item()
            optimizer.zero_grad()
            out = model_parallel(src)
            loss = criterion(out.view(-1, out.size(-1)), tgt.view(-1)) / n
            loss.backward()
            optimizer.step_and_update_lr(n)
            words += n
            epoch_loss, epoch_words = epoch_loss + loss.item() * n, epoch_words + n
            if words >= opt.max_words:
                break
        epoch += 1
        print('epoch %d: %d words, loss per word %.5f, lr %.6f' % (epoch, words, epoch_loss / epoch_words, optimizer.lr()))
        model.eval()
        with torch.no_grad():
            src, tgt = collate(sentences(5))
            print('greedy:', model(src.cuda()).argmax(-1)[0].tolist(), 'gold:', tgt[0].tolist())


if __name__ == '__main__':
    main()
