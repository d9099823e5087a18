import torch

from pit_criterion import masked_mse


class Solver(object):
    def __init__(self, data, model, optimizer, args):
        self.tr_loader = data['tr_loader']
        self.cv_loader = data['cv_loader']
        self.model = model
        self.optimizer = optimizer
        self.args = args
        self.halving = False
        self._reset()

    def _reset(self):
        if self.args.continue_from:
            package = torch.load(self.args.continue_from)
            self.model.module.load_state_dict(package['state_dict'])
            self.optimizer.load_state_dict(package['optim_dict'])
        self.prev_val_loss = float('inf')
        self.best_val_loss = float('inf')
        self.val_no_impv = 0

    def train(self):
        for epoch in range(self.args.epochs):
            self.model.train()
            tr_loss = self._run_one_epoch(epoch)
            self.model.eval()
            with torch.no_grad():
                val_loss = self._run_one_epoch(epoch, cross_valid=True)
            print('Epoch {} | Train {:.4f} | Valid {:.4f}'.format(epoch + 1, tr_loss, val_loss))
            if self.args.half_lr:
                if val_loss >= self.prev_val_loss:
                    self.val_no_impv += 1
                    self.halving = True
                    if self.val_no_impv >= 10 and self.args.early_stop:
                        break
                else:
                    self.val_no_impv = 0
            if self.halving:
                optim_state = self.optimizer.state_dict()
                optim_state['param_groups'][0]['lr'] = optim_state['param_groups'][0]['lr'] / 2.0
                self.optimizer.load_state_dict(optim_state)
                self.halving = False
            self.prev_val_loss = val_loss
            if val_loss < self.best_val_loss:
                self.best_val_loss = val_loss
                torch.save(self.model.module.serialize(self.model.module, self.optimizer, epoch + 1), self.args.model_path)

    def _run_one_epoch(self, epoch, cross_valid=False):
        total_loss = 0
        data_loader = self.tr_loader if not cross_valid else self.cv_loader
        for i, (data) in enumerate(data_loader):
            mixture, lengths, source = data
            mixture, lengths, source = mixture.cuda(), lengths.cuda(), source.cuda()
            estimate = self.model(mixture)
            loss = masked_mse(estimate, source, lengths)
            if not cross_valid:
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_norm)
                self.optimizer.step()
            total_loss += loss.item()
        return total_loss / (i + 1)
