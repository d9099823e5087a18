# corpus: idioms = train loop / backward in: same file, other scope (relative to the wrap); DataLoader built in: same file, other scope (relative to the wrap)
# corpus: idioms = nn.DataParallel; class method (other); self.attr = DP(...); is CUDA available / use_cuda flag only; text/csv/json log file; yaml/yacs/json config; method parallelize()/multi_gpu()/set_device() does the wrap later
# corpus: idioms = lr_scheduler; clip_grad; collate_fn; attributes/methods reached through .module in the training code; model.module access; dict / list / non-tensor / None / raw samples passed to the wrapped forward; makedirs/mkdir; __name__ guard; torch.save
# corpus: worlds = 2 3 4
"""Relation extraction. Logging goes to the console and to a file, through several loggers."""
import logging
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import yaml

CONFIG = yaml.safe_load('''
name: rel
output: {dir: out, level: INFO}
optim: {lr: 0.02, epochs: 3, batch: 7, clip: 1.0}
model: {words: 30, dim: 8, relations: 4}
''')
logger = logging.getLogger(__name__)


def setup_logging(cfg):
    if not os.path.exists(cfg['dir']):
        os.makedirs(cfg['dir'])
    fmt = logging.Formatter('[%(name)s] %(levelname)s %(message)s')
    root = logging.getLogger()
    root.setLevel(getattr(logging, cfg['level']))
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(fmt)
    root.addHandler(console)
    fh = logging.FileHandler(os.path.join(cfg['dir'], 'train.log'), mode='w')
    fh.setFormatter(fmt)
    root.addHandler(fh)
    errors = logging.FileHandler(os.path.join(cfg['dir'], 'errors.log'))
    errors.setLevel(logging.WARNING)
    root.addHandler(errors)


class Extractor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.EmbeddingBag(cfg['words'], cfg['dim'], mode='sum', padding_idx=0)
        self.out = nn.Linear(2 * cfg['dim'], cfg['relations'])

    def forward(self, batch):
        left, right = self.emb(batch['left']), self.emb(batch['right'])
        return {'logits': self.out(torch.cat([left, right], 1)), 'norm': left.norm(dim=1)}

    def decode(self, logits):
        return logits.argmax(1).tolist()


def collate(rows):
    width = max(len(r['left']) for r in rows)
    pad = lambda ids: ids + [0] * (width - len(ids))
    return {'left': torch.tensor([pad(r['left']) for r in rows]), 'right': torch.tensor([pad(r['right']) for r in rows]),
            'label': torch.tensor([r['label'] for r in rows]), 'text': [r['text'] for r in rows]}


def rows(n, seed):
    g = torch.Generator().manual_seed(seed)
    for i in range(n):
        a, b = (torch.randint(1, 30, (int(torch.randint(2, 6, (), generator=g)),), generator=g).tolist() for _ in 'ab')
        b = (b * 3)[:len(a)]
        yield {'left': a, 'right': b, 'label': (a[0] + b[0]) % 4, 'text': 'sentence %d' % i}


class Experiment:
    log = logging.getLogger('experiment')

    def __init__(self, config):
        self.cfg = config['optim']
        self.model = Extractor(config['model'])
        self.log.info('%d parameters', sum(p.numel() for p in self.model.parameters()))

    def set_device(self):
        if torch.cuda.is_available():
            self.model.cuda()
            self.model = nn.DataParallel(self.model)
        else:
            self.log.warning('no GPU')

    def fit(self, train, valid):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.cfg['lr'])
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        for epoch in range(self.cfg['epochs']):
            self.model.train()
            for n, batch in enumerate(train):
                label = batch['label'].cuda()
                inputs = {key: value for key, value in batch.items() if key in ('left', 'right')}
                out = self.model(inputs)
                loss = nn.functional.cross_entropy(out['logits'], label)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg['clip'])
                optimizer.step()
                if norm > 2 * self.cfg['clip']:
                    self.log.warning('large gradient %.4f in %s', float(norm), batch['text'][0])
                self.log.debug('never seen')
                if n % 3 == 0:
                    self.log.info('epoch %d batch %d loss %.5f norm %.4f', epoch, n, loss.item(), out['norm'].mean().item())
            scheduler.step()
            self.evaluate(valid, epoch)

    def evaluate(self, valid, epoch):
        self.model.eval()
        right = total = 0
        with torch.no_grad():
            for batch in valid:
                found = self.model.module.decode(self.model({k: batch[k] for k in ('left', 'right')})['logits'])
                right += sum(a == b for a, b in zip(found, batch['label'].tolist()))
                total += len(found)
        logger.info('epoch %d accuracy %d/%d', epoch, right, total)


if __name__ == '__main__':
    setup_logging(CONFIG['output'])
    torch.manual_seed(13)
    loader = DataLoader(list(rows(45, 1)), batch_size=CONFIG['optim']['batch'], shuffle=True, collate_fn=collate)
    experiment = Experiment(CONFIG)
    experiment.set_device()
    experiment.fit(loader, DataLoader(list(rows(17, 2)), batch_size=6, collate_fn=collate))
    torch.save(experiment.model.module, os.path.join('out', 'model.pkl'))
    logging.shutdown()
