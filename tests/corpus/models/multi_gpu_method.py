# corpus: idioms = torch.nn.DataParallel; class method (other); self.attr = DP(...); none; method parallelize()/multi_gpu()/set_device() does the wrap later; own flag (args.multi_gpu / parallel / mGPUs ...); optimizer stored inside the wrapped module; optimizer created before wrap; dict / list / non-tensor / None / raw samples passed to the wrapped forward; try: net.module ... except: net; model.module access; set_device/default tensor type; module.state_dict() (no prefix); clip_grad; argparse; tqdm/progress bar
# corpus: worlds = 2 3
# corpus: arguments = --parallel
"""A reader for questions and passages; the model class wraps its own network when told to."""
import argparse
import copy
import logging
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import torch.nn.functional as F

logger = logging.getLogger('DrQA')


class RnnDocReader(nn.Module):
    def __init__(self, args):
        super(RnnDocReader, self).__init__()
        self.args = args
        self.embedding = nn.Embedding(args.vocab, args.embedding_dim, padding_idx=0)
        self.doc_rnn = nn.GRU(args.embedding_dim, args.hidden, batch_first=True, bidirectional=True)
        self.q_rnn = nn.GRU(args.embedding_dim, args.hidden, batch_first=True)
        self.start = nn.Bilinear(2 * args.hidden, args.hidden, 1)
        self.end = nn.Bilinear(2 * args.hidden, args.hidden, 1)

    def forward(self, x1, x1_f, x1_mask, x2, x2_mask):
        e1, e2 = self.embedding(x1), self.embedding(x2)
        e1 = F.dropout(e1, p=self.args.dropout, training=self.training)
        if x1_f is not None:
            e1 = e1 * x1_f.unsqueeze(2)
        d, _ = self.doc_rnn(e1)
        q, _ = self.q_rnn(e2)
        q = (q * (1 - x2_mask.type_as(q)).unsqueeze(2)).mean(1)
        q = q.unsqueeze(1).expand(-1, d.size(1), -1).contiguous()
        s = self.start(d, q).squeeze(2).masked_fill(x1_mask, -1e9)
        e = self.end(d, q).squeeze(2).masked_fill(x1_mask, -1e9)
        if self.training:
            return F.log_softmax(s, dim=1), F.log_softmax(e, dim=1)
        return F.softmax(s, dim=1), F.softmax(e, dim=1)


class DocReader(object):
    def __init__(self, args):
        self.args = args
        self.network = RnnDocReader(args)
        self.updates = 0
        self.use_cuda = False
        self.parallel = False

    def init_optimizer(self):
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        self.optimizer = optim.Adamax(parameters, weight_decay=self.args.weight_decay)

    def update(self, ex):
        self.network.train()
        if self.use_cuda:
            inputs = [e if e is None else e.cuda(non_blocking=True) for e in ex[:5]]
            target_s, target_e = ex[5].cuda(non_blocking=True), ex[6].cuda(non_blocking=True)
        else:
            inputs, target_s, target_e = ex[:5], ex[5], ex[6]
        score_s, score_e = self.network(*inputs)
        loss = F.nll_loss(score_s, target_s) + F.nll_loss(score_e, target_e)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.args.grad_clipping)
        self.optimizer.step()
        self.updates += 1
        return loss.item(), ex[0].size(0)

    def predict(self, ex):
        self.network.eval()
        with torch.no_grad():
            s, e = self.network(*[x if x is None else x.cuda() for x in ex[:5]])
        s, e = s.data.cpu(), e.data.cpu()
        best = []
        for i in range(s.size(0)):
            scores = torch.ger(s[i], e[i]).triu_().numpy()
            best.append(tuple(int(v) for v in np.unravel_index(scores.argmax(), scores.shape)))
        return best

    def save(self, filename):
        try:
            network = self.network.module
        except AttributeError:
            network = self.network
        state_dict = copy.copy(network.state_dict())
        torch.save({'state_dict': state_dict, 'args': vars(self.args), 'updates': self.updates}, filename)

    def cuda(self):
        self.use_cuda = True
        self.network = self.network.cuda()

    def parallelize(self):
        """Use data parallel to copy the model across several gpus. Takes every visible device."""
        self.parallel = True
        self.network = torch.nn.DataParallel(self.network)


def batches(args, n, seed):
    rs = np.random.RandomState(seed)
    for lo in range(0, n, args.batch_size):
        b = min(args.batch_size, n - lo)
        x1 = torch.from_numpy(rs.randint(1, args.vocab, (b, 9)))
        x2 = torch.from_numpy(rs.randint(1, args.vocab, (b, 4)))
        x1_f = None if lo % 3 == 0 else torch.from_numpy(rs.rand(b, 9).astype('float32'))
        yield (x1, x1_f, x1.eq(0), x2, x2.eq(0), torch.from_numpy(rs.randint(0, 9, b)), torch.from_numpy(rs.randint(0, 9, b)))


def main(args):
    torch.manual_seed(args.random_seed)
    model = DocReader(args)
    model.init_optimizer()
    if args.cuda:
        model.cuda()
    if args.parallel:
        model.parallelize()
    for epoch in range(args.num_epochs):
        total, count = 0, 0
        for idx, ex in enumerate(batches(args, 37, 10 + epoch)):
            loss, b = model.update(ex)
            total, count = total + loss * b, count + b
            if idx % 2 == 0:
                logger.info('train: Epoch = %d | iter = %d | loss = %.4f' % (epoch, idx, total / count))
        print(epoch, [model.predict(ex) for ex in batches(args, 11, 99)][-1])
    model.save('reader.mdl')


if __name__ == '__main__':
    parser = argparse.ArgumentParser('DrQA Document Reader')
    parser.add_argument('--vocab', type=int, default=23)
    parser.add_argument('--embedding-dim', type=int, default=6)
    parser.add_argument('--hidden', type=int, default=5)
    parser.add_argument('--dropout', type=float, default=0.3)
    parser.add_argument('--weight-decay', type=float, default=0.01)
    parser.add_argument('--grad-clipping', type=float, default=10)
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--num-epochs', type=int, default=2)
    parser.add_argument('--random-seed', type=int, default=1013)
    parser.add_argument('--no-cuda', action='store_true')
    parser.add_argument('--gpu', type=int, default=-1)
    parser.add_argument('--parallel', action='store_true')
    args = parser.parse_args()
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    if args.cuda:
        torch.cuda.set_device(args.gpu)
    logger.setLevel(logging.INFO)
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(logging.Formatter('[ %(message)s ]'))
    logger.addHandler(console)
    main(args)
