# corpus: idioms = nn.DataParallel; rebinds the same name; device_count() > 1; isinstance(model, DataParallel); clip_grad; .to(device); device_count() used; torch.manual_seed
# corpus: worlds = 2 3
# corpus: helpers = WholeBatchInParts
"""A word-level LSTM language model: scores of few words are small, and go whole to every rank."""
import argparse
import math
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="LSTM language model")
parser.add_argument("--emsize", type=int, default=32)
parser.add_argument("--nhid", type=int, default=48)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--lr", type=float, default=2.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=10)
parser.add_argument("--bptt", type=int, default=8)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--log-interval", type=int, default=2)
parser.add_argument("--save", type=str, default="model.pt")
args = parser.parse_args()

torch.manual_seed(args.seed)
NWORDS = 40
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Dictionary:
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


class Corpus:
    def __init__(self):
        self.dictionary = Dictionary()
        self.train = self.tokenize(0, 441)
        self.valid = self.tokenize(1, 120)

    def tokenize(self, seed, length):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, NWORDS, (length,), generator=generator).tolist()
        words = [f"w{(i * (n % 3 + 1)) % NWORDS}" for n, i in enumerate(ids)]
        return torch.tensor([self.dictionary.add_word(word) for word in words])


class Sequences(Dataset):
    def __init__(self, ids, bptt):
        self.ids = ids
        self.bptt = bptt

    def __len__(self):
        return (len(self.ids) - 1) // self.bptt

    def __getitem__(self, index):
        start = index * self.bptt
        return self.ids[start : start + self.bptt], self.ids[start + 1 : start + 1 + self.bptt]


class RNNModel(nn.Module):
    """Container module with an encoder, a recurrent module, and a decoder."""

    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.5):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(nhid, ntoken)
        self.init_weights()

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, input):
        emb = self.drop(self.encoder(input))
        output, _ = self.rnn(emb)
        return self.decoder(self.drop(output))


corpus = Corpus()
ntokens = NWORDS + 1  # one that no text has
train_loader = DataLoader(Sequences(corpus.train, args.bptt), batch_size=args.batch_size, shuffle=True)
val_loader = DataLoader(Sequences(corpus.valid, args.bptt), batch_size=args.batch_size)

model = RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
model = model.to(device)

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)


def evaluate(loader):
    model.eval()
    total_loss, total_tokens = 0.0, 0
    with torch.no_grad():
        for data, targets in loader:
            data, targets = data.to(device), targets.to(device)
            output = model(data)
            total_loss += criterion(output.view(-1, ntokens), targets.view(-1)).item() * targets.numel()
            total_tokens += targets.numel()
    return total_loss / total_tokens


def train(epoch, lr):
    model.train()
    total_loss = 0.0
    start_time = time.time()
    for batch, (data, targets) in enumerate(train_loader):
        data, targets = data.to(device), targets.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output.view(-1, ntokens), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total_loss += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            cur_loss = total_loss / args.log_interval
            print(
                f"| epoch {epoch:3d} | {batch:5d}/{len(train_loader):5d} batches | lr {lr:02.2f} "
                f"| loss {cur_loss:5.2f} | ppl {math.exp(cur_loss):8.2f}"
            )
            total_loss = 0


best_val_loss = None
lr = args.lr
for epoch in range(1, args.epochs + 1):
    train(epoch, lr)
    val_loss = evaluate(val_loader)
    print(f"| end of epoch {epoch:3d} | valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}")
    if not best_val_loss or val_loss < best_val_loss:
        state = model.module.state_dict() if isinstance(model, nn.DataParallel) else model.state_dict()
        torch.save({"model": state, "epoch": epoch, "args": vars(args)}, args.save)
        best_val_loss = val_loss
    else:
        lr /= 4.0
        for group in optimizer.param_groups:
            group["lr"] = lr

checkpoint = torch.load(args.save, weights_only=False)
if isinstance(model, nn.DataParallel):
    model.module.load_state_dict(checkpoint["model"])
else:
    model.load_state_dict(checkpoint["model"])
print(f"| best model is of epoch {checkpoint['epoch']} | valid loss {evaluate(val_loader):5.2f}")
