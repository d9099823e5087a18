# corpus: idioms = nn.parallel.DataParallel; other helper function; new name, raw model kept under another name; framework loop (ignite/torchnet Engine); wrap happens inside an engine/trainer factory that rebinds a local name; attribute set on the wrapper object
# corpus: idioms = device_count() > 1; text/csv/json log file; best selection; AverageMeter; tqdm/progress bar; device_count() used; DP(...).to(device); shuffle literal True; non_blocking; raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA)
# corpus: worlds = 2 3
"""Metric learning with a small engine of events, in the manner of ignite; the factory wraps a local name."""
from collections import defaultdict
import json

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Events:
    STARTED, EPOCH_STARTED, ITERATION_COMPLETED, EPOCH_COMPLETED, COMPLETED = range(5)


class State:
    def __init__(self):
        self.epoch, self.iteration, self.output, self.metrics = 0, 0, None, {}


class Engine:
    def __init__(self, process):
        self.process, self.handlers, self.state = process, defaultdict(list), State()

    def on(self, event):
        def decorator(f):
            self.handlers[event].append(f)
            return f
        return decorator

    def fire(self, event):
        for f in self.handlers[event]:
            f(self)

    def run(self, data, max_epochs=1):
        self.fire(Events.STARTED)
        for self.state.epoch in range(1, max_epochs + 1):
            self.fire(Events.EPOCH_STARTED)
            for batch in data:
                self.state.iteration += 1
                self.state.output = self.process(self, batch)
                self.fire(Events.ITERATION_COMPLETED)
            self.fire(Events.EPOCH_COMPLETED)
        self.fire(Events.COMPLETED)
        return self.state


def create_supervised_trainer(model, optimizer, loss_fn, device):
    if torch.cuda.device_count() > 1:
        model = nn.parallel.DataParallel(model)
        model.tag = 'parallel'
    model.to(device)

    def _update(engine, batch):
        model.train()
        optimizer.zero_grad()
        img, target = (t.to(device, non_blocking=True) for t in batch)
        feat = model(img)
        loss = loss_fn(feat, target)
        loss.backward()
        optimizer.step()
        return loss.item(), (feat.argmax(1) == target).float().mean().item()

    return Engine(_update)


def create_evaluator(model, device):
    if torch.cuda.device_count() > 1:
        model = nn.parallel.DataParallel(model)
    model.to(device)

    def _inference(engine, batch):
        model.eval()
        with torch.no_grad():
            x, y = batch
            return model(x.to(device)).argmax(1).cpu().eq(y).sum().item(), len(y)

    return Engine(_inference)


def main():
    torch.manual_seed(4)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    x = torch.randn(61, 7)
    y = (x[:, :3].softmax(1) + 0.1).argmax(1)
    train_loader = DataLoader(TensorDataset(x[:45], y[:45]), 9, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[45:], y[45:]), 6)
    model = nn.Sequential(nn.Linear(7, 14), nn.BatchNorm1d(14), nn.ReLU(), nn.Linear(14, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device)
    evaluator = create_evaluator(model, device)
    history = []

    @trainer.on(Events.ITERATION_COMPLETED)
    def log_loss(engine):
        if engine.state.iteration % 3 == 0:
            print('Epoch[%d] Iteration[%d] Loss: %.4f, Acc: %.3f' % (engine.state.epoch, engine.state.iteration, *engine.state.output))

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        right = []
        evaluator.handlers[Events.ITERATION_COMPLETED] = [lambda e: right.append(e.state.output)]
        evaluator.run(val_loader)
        acc = sum(r for r, _ in right) / sum(n for _, n in right)
        history.append({'epoch': engine.state.epoch, 'acc': acc})
        if acc >= max(h['acc'] for h in history):
            torch.save(model.state_dict(), 'best_model.pth')
        print('val %.4f' % acc)

    @trainer.on(Events.COMPLETED)
    def finish(engine):
        with open('history.json', 'w') as f:
            json.dump(history, f)

    trainer.run(train_loader, max_epochs=3)


main()
