# corpus: idioms = nn.DataParallel; class method (__init__); self.attr = DP(...); device_ids from config/args/variable; device_count() > 1; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA); new name, raw model kept under another name; optimizer created before wrap; yaml/yacs/json config; 'cuda:0' literal; early stopping; val loss of this process drives lr / early stop / rollback; EMA / second copy of weights; own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); .to(device); DP(...).to(device)
# corpus: worlds = 2 3
"""A little BERT-ish trainer: raw model for the optimizer, EMA and checkpoints; wrapper for training."""
import copy
import json
import math
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CONFIG = json.loads("""{"n_gpu": 0, "arch": {"hidden": 8, "layers": 1, "vocab": 17},
                        "trainer": {"epochs": 3, "save_dir": "saved", "early_stop": 2}, "warmup": 4}""")


class TextSet(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randint(1, 17, (n, 7), generator=g)
        self.x[:, 5:] *= torch.randint(0, 2, (n, 1), generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, item):
        t = self.x[item]
        return {"bert_input": t, "label": t.flip(0), "is_next": t[0] % 2}


class BERT(nn.Module):
    def __init__(self, vocab, hidden, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, hidden, padding_idx=0)
        self.enc = nn.ModuleList([nn.TransformerEncoderLayer(hidden, 2, 16, dropout=0.1, batch_first=True)
                                  for _ in range(layers)])

    def forward(self, x):
        mask = x.eq(0)
        h = self.emb(x)
        for layer in self.enc:
            h = layer(h, src_key_padding_mask=mask)
        return h


class BERTLM(nn.Module):
    def __init__(self, bert, vocab, hidden):
        super().__init__()
        self.bert = bert
        self.next_sentence = nn.Linear(hidden, 2)
        self.mask_lm = nn.Linear(hidden, vocab)

    def forward(self, x):
        x = self.bert(x)
        return self.next_sentence(x[:, 0]).log_softmax(-1), self.mask_lm(x).log_softmax(-1)


class ScheduledOptim(object):
    def __init__(self, optimizer, d_model, n_warmup_steps):
        self._optimizer = optimizer
        self.n_warmup_steps = n_warmup_steps
        self.n_current_steps = 0
        self.init_lr = math.pow(d_model, -0.5)

    def step_and_update_lr(self):
        self.n_current_steps += 1
        lr = self.init_lr * min(self.n_current_steps ** -0.5, self.n_warmup_steps ** -1.5 * self.n_current_steps)
        for group in self._optimizer.param_groups:
            group['lr'] = lr
        self._optimizer.step()

    def zero_grad(self):
        self._optimizer.zero_grad()


class BERTTrainer:
    def __init__(self, bert, config, train_loader, valid_loader):
        arch = config["arch"]
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.config = config
        self.bert = bert
        self.raw_model = BERTLM(bert, arch["vocab"], arch["hidden"]).to(self.device)
        self.optim = torch.optim.Adam(self.raw_model.parameters(), lr=1e-3, weight_decay=0.01)
        self.optim_schedule = ScheduledOptim(self.optim, arch["hidden"], config["warmup"])
        device_ids = list(range(torch.cuda.device_count()))
        if torch.cuda.device_count() > 1:
            self.model = nn.DataParallel(self.raw_model, device_ids=device_ids).to(self.device)
        else:
            self.model = self.raw_model
        self.ema = copy.deepcopy(self.raw_model).eval()
        self.train_data, self.valid_data = train_loader, valid_loader
        self.criterion = nn.NLLLoss(ignore_index=0)
        self.mnt_best, self.not_improved = math.inf, 0

    def fit(self):
        for epoch in range(self.config["trainer"]["epochs"]):
            log = self.iteration(epoch, self.train_data)
            val = self.iteration(epoch, self.valid_data, train=False)
            print("epoch", epoch, {k: round(v, 5) for k, v in {**log, **{"val_" + k: v for k, v in val.items()}}.items()})
            if val["loss"] < self.mnt_best:
                self.mnt_best, self.not_improved = val["loss"], 0
                self.save(epoch)
            else:
                self.not_improved += 1
            if self.not_improved >= self.config["trainer"]["early_stop"]:
                print("no improvement, stop")
                break

    def iteration(self, epoch, data_loader, train=True):
        self.model.train(train)
        avg_loss = total_correct = total_element = 0.0
        for i, data in enumerate(data_loader):
            data = {key: value.to(self.device) for key, value in data.items()}
            with torch.set_grad_enabled(train):
                nsp, mlm = self.model(data["bert_input"])
            next_loss = nn.functional.nll_loss(nsp, data["is_next"])
            mask_loss = self.criterion(mlm.transpose(1, 2), data["label"])
            loss = next_loss + mask_loss
            if train:
                self.optim_schedule.zero_grad()
                loss.backward()
                self.optim_schedule.step_and_update_lr()
                for p, q in zip(self.ema.parameters(), self.raw_model.parameters()):
                    p.data.mul_(0.9).add_(q.data, alpha=0.1)
            avg_loss += loss.item()
            total_correct += nsp.argmax(dim=-1).eq(data["is_next"]).sum().item()
            total_element += data["is_next"].nelement()
        return {"loss": avg_loss / len(data_loader), "acc": total_correct * 100.0 / total_element}

    def save(self, epoch):
        d = self.config["trainer"]["save_dir"]
        os.makedirs(d, exist_ok=True)
        torch.save(self.bert.cpu().state_dict(), os.path.join(d, "bert.ep%d" % epoch))
        self.bert.to(self.device)
        torch.save(self.ema.state_dict(), os.path.join(d, "ema.pth"))


def main(config):
    torch.manual_seed(123)
    bert = BERT(config["arch"]["vocab"], config["arch"]["hidden"], config["arch"]["layers"])
    train_loader = DataLoader(TextSet(43, 0), batch_size=8, shuffle=True)
    valid_loader = DataLoader(TextSet(20, 1), batch_size=8)
    BERTTrainer(bert, config, train_loader, valid_loader).fit()


if __name__ == '__main__':
    main(CONFIG)
