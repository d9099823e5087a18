# corpus: idioms = train loop / backward in: same file, other scope (relative to the wrap)
# corpus: idioms = torch.nn.DataParallel; function main/train/run; rebinds the same name; device_ids from config/args/variable; own flag (args.multi_gpu / parallel / mGPUs ...); DP(...).cuda()
# corpus: idioms = try/except around step (OOM/KeyboardInterrupt); isinstance(model, DataParallel); best selection; p.data edits outside optimizer; lr / phase / stop schedule driven by locally counted samples or tokens
# corpus: worlds = 2
"""Word level language model after the pytorch example: "Hit Ctrl + C to break out of training early"."""
import argparse
import math
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=40)
parser.add_argument('--batch_size', type=int, default=6)
parser.add_argument('--bptt', type=int, default=7)
parser.add_argument('--lr', type=float, default=1.0)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--multi-gpu', action='store_true', default=True)
parser.add_argument('--gpu-ids', default='0,1')
parser.add_argument('--save', default='model.pt')
parser.add_argument('--max-steps', type=int, default=17)
args = parser.parse_args()
args.gpu_ids = [int(i) for i in args.gpu_ids.split(',')]
torch.manual_seed(1111)


class WordModel(nn.Module):
    def __init__(self, ntoken, nhid):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, nhid)
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(nhid, nhid, batch_first=True)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, data):
        out, _ = self.rnn(self.drop(self.encoder(data)))
        return self.decoder(self.drop(out))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).contiguous().cuda()


def get_batch(source, i):
    n = min(args.bptt, source.size(1) - 1 - i)
    return source[:, i:i + n], source[:, i + 1:i + 1 + n]


def evaluate(model, source):
    model.eval()
    total = 0.
    with torch.no_grad():
        for i in range(0, source.size(1) - 1, args.bptt):
            data, targets = get_batch(source, i)
            total += data.size(1) * criterion(model(data).flatten(0, 1), targets.flatten()).item()
    return total / (source.size(1) - 1)


criterion = nn.CrossEntropyLoss()
text = torch.randint(0, 15, (400,), generator=torch.Generator().manual_seed(4))
text[1::2] = (text[::2] * 3 + 1) % 15
train_data, val_data = batchify(text[:300], args.batch_size), batchify(text[300:], 4)


def train(model):
    best, steps = None, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        start = time.time()
        for i in range(0, train_data.size(1) - 1, args.bptt):
            if steps == args.max_steps:
                raise KeyboardInterrupt  # stands for the person
            data, targets = get_batch(train_data, i)
            model.zero_grad()
            loss = criterion(model(data).flatten(0, 1), targets.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            for p in model.parameters():
                p.data.mul_(1 - 1e-3)
            steps += 1
        val = evaluate(model, val_data)
        print('| end of epoch {:3d} | time: {:5.2f}s | valid loss {:5.4f} | valid ppl {:8.3f}'.format(
            epoch, time.time() - start, val, math.exp(val)))
        if not best or val < best:
            with open(args.save, 'wb') as f:
                torch.save(model.state_dict(), f)
            best = val
        else:
            optimizer.param_groups[0]['lr'] /= 4.0


def main():
    model = WordModel(15, 10)
    if args.multi_gpu:
        model = torch.nn.DataParallel(model, device_ids=args.gpu_ids).cuda()
    try:
        train(model)
    except KeyboardInterrupt:
        print('-' * 40)
        print('Exiting from training early')
        net = model.module if isinstance(model, torch.nn.DataParallel) else model
        torch.save({'state': net.state_dict(), 'why': 'interrupted'}, 'interrupted.pt')
    with open(args.save, 'rb') as f:
        model.load_state_dict(torch.load(f))
    print('| End of training | test loss %.4f' % evaluate(model, val_data))


if __name__ == '__main__':
    main()
