# corpus: idioms = training loop without torch DataLoader (own iterator, queue, replay buffer); batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits; dim=1; hidden state / memory carried from batch to batch; order, crops or lengths drawn from np.random / random in dataset, sampler or loop; clip_grad; ReduceLROnPlateau/metric driven; DataLoader built in: none in closure (relative to the wrap); np.random/random seed
# corpus: worlds = 2 3
"""A character model: text cut by hand into columns, hidden state carried, lengths drawn from numpy."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description='PyTorch char LM')
parser.add_argument('--batch_size', type=int, default=6)
parser.add_argument('--bptt', type=int, default=7)
parser.add_argument('--lr', type=float, default=2.)
parser.add_argument('--cuda', action='store_true', default=True)
args = parser.parse_args()

np.random.seed(1882)
torch.manual_seed(1882)
text = 'the quick brown fox jumps over the lazy dog and runs away from it. ' * 9
chars = sorted(set(text))
ids = torch.LongTensor([chars.index(c) for c in text])


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    data = data.view(bsz, -1).t().contiguous()
    return data.cuda() if args.cuda else data


def get_batch(source, i, seq_len=None):
    seq_len = min(seq_len if seq_len else args.bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


def repackage_hidden(h):
    return tuple(repackage_hidden(v) for v in h) if isinstance(h, tuple) else h.detach()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=10, nhid=16):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid

    def forward(self, input, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return self.decoder(self.drop(out)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(1, bsz, self.nhid), weight.new_zeros(1, bsz, self.nhid))


cut = len(ids) * 4 // 5
train_data, val_data = batchify(ids[:cut], args.batch_size), batchify(ids[cut:], args.batch_size)
model = RNNModel(len(chars))
parallel_model = nn.DataParallel(model, dim=1).cuda()
criterion = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    total, hidden = 0., model.init_hidden(args.batch_size)
    with torch.no_grad():
        for i in range(0, val_data.size(0) - 1, args.bptt):
            data, targets = get_batch(val_data, i)
            output, hidden = parallel_model(data, hidden)
            total += len(data) * criterion(output.view(-1, len(chars)), targets).item()
    return total / len(val_data)


optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
for epoch in range(2):
    model.train()
    hidden = model.init_hidden(args.batch_size)
    i = batch = 0
    while i < train_data.size(0) - 1 - 1:
        bptt = args.bptt if np.random.random() < 0.95 else args.bptt / 2.
        seq_len = max(5, int(np.random.normal(bptt, 2)))
        lr2 = optimizer.param_groups[0]['lr']
        optimizer.param_groups[0]['lr'] = lr2 * seq_len / args.bptt
        data, targets = get_batch(train_data, i, seq_len=seq_len)
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden = parallel_model(data, hidden)
        loss = criterion(output.view(-1, len(chars)), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.param_groups[0]['lr'] = lr2
        if batch % 3 == 0:
            print('| epoch {:3d} | {:5d} batches | seq {:2d} | loss {:5.3f}'.format(epoch, batch, seq_len, loss.item()))
        batch += 1
        i += seq_len
    val_loss = evaluate()
    plateau.step(val_loss)
    print('| end of epoch {:3d} | valid loss {:5.3f} | valid bpc {:8.3f}'.format(epoch, val_loss, val_loss / math.log(2)))
