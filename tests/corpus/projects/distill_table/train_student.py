# corpus: idioms = nn.DataParallel; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); several models wrapped in one script; parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer); torch.load; manual adjust_learning_rate; prefix handled by hand (strip/replace "module.")
# corpus: idioms = DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); dict / list / non-tensor / None / raw samples passed to the wrapped forward; tensorboard; drop_last; global statement; couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode)
# corpus: worlds = 2
"""A teacher and a student out of a table of models; losses out of another, one with layers of its own."""
import argparse
import os

import torch
import torch.nn as nn

from distiller import DISTILLERS
from distiller.loops import train_distill
from loaders import get_dataloaders
from models import model_dict

parser = argparse.ArgumentParser()
parser.add_argument('--model_s', default='wrn_small', choices=list(model_dict))
parser.add_argument('--model_t', default='wrn_large', choices=list(model_dict))
parser.add_argument('--distill', default='hint', choices=list(DISTILLERS))
parser.add_argument('--path_t', default='teacher.pth')


def load_teacher(opt):
    model = model_dict[opt.model_t](num_classes=4)
    if os.path.exists(opt.path_t):
        model.load_state_dict(torch.load(opt.path_t)['model'])
    for p in model.parameters():
        p.requires_grad = False
    return model


def main():
    opt = parser.parse_args()
    torch.manual_seed(10)
    train_loader = get_dataloaders()['train']
    model_t, model_s = load_teacher(opt), model_dict[opt.model_s](num_classes=4)
    criterion_kd = DISTILLERS[opt.distill](model_s.width, model_t.width).cuda()
    trainable = nn.ModuleList([model_s, criterion_kd])
    optimizer = torch.optim.SGD(trainable.parameters(), lr=0.05, momentum=0.9)
    model_s = nn.DataParallel(model_s.cuda())
    model_t = nn.DataParallel(model_t.cuda())
    for epoch in range(1, 4):
        loss = train_distill(epoch, train_loader, model_s, model_t, criterion_kd, optimizer)
        print('epoch', epoch, round(loss, 4))
    torch.save({'model': model_s.module.state_dict(), 'opt': vars(opt)}, 'student.pth')


if __name__ == '__main__':
    main()
