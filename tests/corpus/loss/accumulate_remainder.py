# corpus: idioms = gradient accumulation; torch GradScaler/autocast; clip_grad; lr_scheduler; tqdm/progress bar
# corpus: worlds = 2 3
"""Transformer fine-tuning in the run_glue manner: accumulation, a remainder that is carried into the next epoch, AMP."""
import argparse
import logging
import random

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

logger = logging.getLogger(__name__)


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.n_gpu > 0:
        torch.cuda.manual_seed_all(args.seed)


class Classifier(nn.Module):
    def __init__(self, vocab=30, d=12):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, d)
        self.encoder = nn.TransformerEncoderLayer(d, 2, 16, dropout=0.1, batch_first=True, activation='gelu')
        self.pooler = nn.Linear(d, d)
        self.classifier = nn.Linear(d, 2)

    def forward(self, input_ids, attention_mask=None, labels=None):
        h = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        logits = self.classifier(torch.tanh(self.pooler(h[:, 0])))
        outputs = (logits,)
        if labels is not None:
            outputs = (nn.CrossEntropyLoss()(logits.view(-1, 2), labels.view(-1)),) + outputs
        return outputs


def get_linear_schedule_with_warmup(optimizer, warmup, total):
    return LambdaLR(optimizer, lambda s: s / max(1, warmup) if s < warmup else max(0.0, (total - s) / max(1, total - warmup)))


def train(args, train_dataset, model):
    args.train_batch_size = args.per_gpu_train_batch_size * max(1, args.n_gpu)
    train_sampler = RandomSampler(train_dataset)
    train_dataloader = DataLoader(train_dataset, sampler=train_sampler, batch_size=args.train_batch_size)
    t_total = len(train_dataloader) // args.gradient_accumulation_steps * args.num_train_epochs
    no_decay = ['bias', 'norm1.weight', 'norm2.weight']
    groups = [{'params': [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], 'weight_decay': 0.01},
              {'params': [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], 'weight_decay': 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate, eps=1e-8)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, t_total)
    scaler = torch.cuda.amp.GradScaler(enabled=args.fp16)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    print('  Total optimization steps =', t_total, 'batch size', args.train_batch_size)
    global_step, tr_loss, logging_loss = 0, 0.0, 0.0
    model.zero_grad()
    set_seed(args)
    for epoch in range(args.num_train_epochs):
        for step, batch in enumerate(train_dataloader):
            model.train()
            batch = tuple(t.to(args.device) for t in batch)
            inputs = {'input_ids': batch[0], 'attention_mask': batch[1], 'labels': batch[2]}
            outputs = model(**inputs)
            loss = outputs[0]
            if args.n_gpu > 1:
                loss = loss.mean()      # mean() to average on multi-gpu parallel training
            if args.gradient_accumulation_steps > 1:
                loss = loss / args.gradient_accumulation_steps
            scaler.scale(loss).backward()
            tr_loss += loss.item()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                model.zero_grad()
                global_step += 1
                print('step %d lr %.6f loss %.6f' % (global_step, scheduler.get_last_lr()[0], tr_loss - logging_loss))
                logging_loss = tr_loss
    return model, tr_loss / global_step


def evaluate(args, model, dataset):
    loader = DataLoader(dataset, sampler=SequentialSampler(dataset), batch_size=9)
    preds, total, steps = [], 0.0, 0
    for batch in loader:
        model.eval()
        ids, mask, labels = (t.to(args.device) for t in batch)
        with torch.no_grad():
            tmp_eval_loss, logits = model(input_ids=ids, attention_mask=mask, labels=labels)[:2]
            total += tmp_eval_loss.mean().item()
        steps += 1
        preds.append(logits.detach().cpu().numpy())
    preds = np.argmax(np.concatenate(preds), axis=1)
    return {'acc': float((preds == dataset.tensors[2].numpy()).mean()), 'loss': total / steps}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--per_gpu_train_batch_size', default=4, type=int)
    parser.add_argument('--gradient_accumulation_steps', type=int, default=3)
    parser.add_argument('--learning_rate', default=1e-2, type=float)
    parser.add_argument('--max_grad_norm', default=0.5, type=float)
    parser.add_argument('--num_train_epochs', default=3, type=int)
    parser.add_argument('--fp16', action='store_true')
    parser.add_argument('--seed', type=int, default=42)
    args = parser.parse_args()
    args.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    args.n_gpu = torch.cuda.device_count()
    set_seed(args)
    ids = torch.randint(1, 30, (53, 7))
    mask = (torch.arange(7)[None] < torch.randint(2, 8, (53, 1))).long()
    labels = (ids[:, 0] > 15).long()
    data = TensorDataset(ids * mask, mask, labels)
    model = Classifier()
    model.to(args.device)
    model, tr_loss = train(args, data, model)
    print('average loss = %s' % round(tr_loss, 5))
    model_to_save = model.module if hasattr(model, 'module') else model
    torch.save(model_to_save.state_dict(), 'pytorch_model.bin')
    print({k: round(v, 5) for k, v in evaluate(args, model, data).items()})


if __name__ == '__main__':
    main()
