# corpus: idioms = torch.nn.DataParallel; own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); criterion itself wrapped / loss module replicated; training loop without torch DataLoader (own iterator, queue, replay buffer); sum / none reduction normalised by hand; lr / phase / stop schedule driven by locally counted samples or tokens
# corpus: idioms = several models wrapped in one script; dict / list / non-tensor / None / raw samples passed to the wrapped forward; yaml/yacs/json config; own flag (args.multi_gpu / parallel / mGPUs ...); train loop / backward in: other file (relative to the wrap); optimizer created before wrap
# corpus: worlds = 2 3 4
# corpus: arguments = data/config.json
"""A copy task in the annotated style: own iterator, own optimizer, a loss divided by the tokens it counts."""
import json
import sys

import torch

from nmt import Batches, LabelSmoothing, NoamOpt, make_model
from nmt.train import run_epoch

if __name__ == '__main__':
    with open(sys.argv[1]) as f:
        config = json.load(f)
    torch.manual_seed(config['seed'])
    model = make_model(config['vocab'], d_model=config['d_model']).cuda()
    criterion = LabelSmoothing(config['vocab'], padding_idx=0, smoothing=0.1).cuda()
    opt = NoamOpt(config['d_model'], 1.0, 8, torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))
    if config['parallel']:
        model = torch.nn.DataParallel(model)
        criterion = torch.nn.DataParallel(criterion)
    for epoch in range(config['epochs']):
        model.train()
        run_epoch(Batches(config['vocab'], 9, 3), model, criterion, opt)
        model.eval()
        with torch.no_grad():
            print('epoch', epoch, round(run_epoch(Batches(config['vocab'], 5, 2), model, criterion, None), 4))
