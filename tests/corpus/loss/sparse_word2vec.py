# corpus: idioms = several optimizers; computed inside the wrapped forward, gathered, then .sum(); len(loader) used as divisor / schedule (breaks when the loader shrinks); torch.rand* inside the train step
# corpus: worlds = 2 3 4
"""Skip-gram with negative sampling: sparse embeddings with SparseAdam, a dense projection with SGD, loss inside the forward."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import SGD, SparseAdam
from torch.utils.data import DataLoader, Dataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--e_dim', type=int, default=6, help="embedding dimension")
    parser.add_argument('--n_negs', type=int, default=3, help="number of negative samples")
    parser.add_argument('--epoch', type=int, default=3)
    parser.add_argument('--mb', type=int, default=8, help="mini-batch size")
    parser.add_argument('--cuda', action='store_true', default=True)
    return parser.parse_args()


class PermutedSubsampledCorpus(Dataset):
    def __init__(self, data, ws=None):
        self.data = [(i, o) for i, o in data if ws is None or random.random() > ws[i]]
        self.data = self.data[:len(self.data) // 2 * 2]      # never a single row: torch cannot view a sparse gradient

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        iword, owords = self.data[idx]
        return iword, np.array(owords)


class Word2Vec(nn.Module):
    def __init__(self, vocab_size=20, embedding_size=6):
        super(Word2Vec, self).__init__()
        self.ivectors = nn.Embedding(vocab_size, embedding_size, sparse=True)
        self.ovectors = nn.Embedding(vocab_size, embedding_size, sparse=True)
        self.mix = nn.Linear(embedding_size, embedding_size, bias=False)
        nn.init.uniform_(self.ivectors.weight, -0.1, 0.1)
        nn.init.uniform_(self.ovectors.weight, -0.1, 0.1)

    def forward(self, iword, owords, nwords):
        ivectors = self.mix(self.ivectors(iword)).unsqueeze(2)
        ovectors = self.ovectors(owords)
        nvectors = self.ovectors(nwords).neg()
        oloss = F.logsigmoid(torch.bmm(ovectors, ivectors).squeeze(2)).mean(1)
        nloss = F.logsigmoid(torch.bmm(nvectors, ivectors).squeeze(2)).view(len(iword), owords.size(1), -1).sum(2).mean(1)
        return -(oloss + nloss).sum()


def train(args):
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    text = np.random.zipf(1.6, 300) % 20
    data = [(int(text[i]), [int(text[i - 1]), int(text[i + 1])]) for i in range(1, 36)]
    wc = np.bincount(text, minlength=20).astype(float)
    ws = np.clip(1 - np.sqrt(20. / np.maximum(wc, 1)), 0, 1)
    sgns = Word2Vec(20, args.e_dim)
    if args.cuda:
        sgns = sgns.cuda()
    model = nn.DataParallel(sgns)
    optim = SparseAdam(list(sgns.ivectors.parameters()) + list(sgns.ovectors.parameters()), lr=0.02)
    optim_dense = SGD(sgns.mix.parameters(), lr=0.05, momentum=0.5)
    for epoch in range(1, args.epoch + 1):
        dataset = PermutedSubsampledCorpus(data, ws)             # another subsample in every epoch
        dataloader = DataLoader(dataset, batch_size=args.mb, shuffle=True)
        total_batches = int(np.ceil(len(dataset) / args.mb))
        running = 0.
        for it, (iword, owords) in enumerate(dataloader):
            nwords = torch.FloatTensor(len(iword), owords.size(1) * args.n_negs).uniform_(0, 19).long()
            loss = model(iword.cuda(), owords.cuda(), nwords.cuda()).sum() / len(iword)
            optim.zero_grad()
            optim_dense.zero_grad()
            loss.backward()
            optim.step()
            optim_dense.step()
            running += loss.item()
            if it % 2 == 0:
                print('[e%d] b%d/%d loss: %7.4f sparse: %s rows %d' % (
                    epoch, it, total_batches, loss.item(), sgns.ivectors.weight.grad.is_sparse, len(iword.unique())))
        print('epoch', epoch, 'mean %.5f' % (running / len(dataloader)))
    idx2vec = sgns.ivectors.weight.data.cpu().numpy()
    np.savetxt('idx2vec.txt', idx2vec)
    torch.save(sgns.state_dict(), 'sgns.pt')
    torch.save([optim.state_dict(), optim_dense.state_dict()], 'sgns.optim.pt')


if __name__ == '__main__':
    train(parse_args())
