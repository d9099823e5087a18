# corpus: idioms = nn.DataParallel; dim=1; batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits; hidden state / memory carried from batch to batch; new name, raw model kept under another name; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); own flag (args.multi_gpu / parallel / mGPUs ...); whole module pickled (wrapper or raw); order, crops or lengths drawn from np.random / random in dataset, sampler or loop; DP(...).to(device); module level, under if __name__; try/except around step (OOM/KeyboardInterrupt); clip_grad; training loop without torch DataLoader (own iterator, queue, replay buffer)
# corpus: worlds = 2 3
# corpus: arguments = --multi_gpu
"""Language model, time first; para_model is the wrapper, model the raw one (as in Transformer-XL, AWD-LSTM)."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', type=int, default=7)
parser.add_argument('--bptt', type=int, default=6)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--lr', type=float, default=1.0)
parser.add_argument('--multi_gpu', action='store_true')
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--alpha', type=float, default=2)
args = parser.parse_args()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, 2, dropout=0.1)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        self.nhid = nhid

    def forward(self, input, hidden, return_h=False):
        self.rnn.flatten_parameters()
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return (decoded, hidden, output) if return_h else (decoded, hidden)

    def init_hidden(self, bsz):
        weight = next(self.parameters()).data
        return (weight.new_zeros(2, bsz, self.nhid), weight.new_zeros(2, bsz, self.nhid))


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def evaluate(data):
    model.eval()
    total = 0
    hidden = model.init_hidden(5)
    with torch.no_grad():
        for i in range(0, data.size(0) - 1, args.bptt):
            n = min(args.bptt, data.size(0) - 1 - i)
            output, hidden = para_model(data[i:i + n], hidden)
            total += n * criterion(output.view(-1, 13), data[i + 1:i + 1 + n].view(-1)).item()
    return total / len(data)


def train():
    model.train()
    total_loss = 0
    start_time = time.time()
    hidden = model.init_hidden(args.batch_size)
    batch, i = 0, 0
    while i < train_data.size(0) - 2:
        bptt = args.bptt if np.random.random() < 0.95 else args.bptt / 2.
        seq_len = max(3, int(np.random.normal(bptt, 2)))
        lr2 = optimizer.param_groups[0]['lr']
        optimizer.param_groups[0]['lr'] = lr2 * seq_len / args.bptt
        n = min(seq_len, len(train_data) - 1 - i)
        data, targets = train_data[i:i + n], train_data[i + 1:i + 1 + n].view(-1)
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden, rnn_h = para_model(data, hidden, return_h=True)
        loss = criterion(output.view(-1, 13), targets)
        (loss + args.alpha * rnn_h.pow(2).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total_loss += loss.data
        optimizer.param_groups[0]['lr'] = lr2
        batch, i = batch + 1, i + n
    print('| {:5d} batches | loss {:5.4f} | ppl {:8.2f}'.format(batch, total_loss.item() / batch, math.exp(total_loss.item() / batch)))


if __name__ == '__main__':
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    text = torch.randint(0, 13, (300,), generator=torch.Generator().manual_seed(0))
    train_data = batchify(text[:231], args.batch_size).to(device)
    val_data = batchify(text[231:], 5).to(device)
    model = RNNModel(13, 8, 8)
    criterion = nn.CrossEntropyLoss()
    if args.multi_gpu:
        model = model.to(device)
        para_model = nn.DataParallel(model, dim=1).to(device)
    else:
        para_model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, weight_decay=1.2e-6)
    best = None
    try:
        for epoch in range(1, args.epochs + 1):
            train()
            val = evaluate(val_data)
            print('-' * 60 + '\n| end of epoch {:3d} | valid loss {:5.4f}'.format(epoch, val))
            if best is None or val < best:
                with open('model.pt', 'wb') as f:
                    torch.save(model, f)
                best = val
            else:
                optimizer.param_groups[0]['lr'] /= 4.0
    except KeyboardInterrupt:
        print('Exiting from training early')
