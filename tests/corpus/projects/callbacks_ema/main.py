# corpus: idioms = torch.nn.DataParallel; class method (other); self.attr = DP(...); EMA / second copy of weights; early stopping; lr_scheduler; tqdm/progress bar; dict or list of loaders; module.state_dict() (no prefix); best selection; text/csv/json log file
# corpus: idioms = DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); yaml/yacs/json config; gradient accumulation; hasattr(model,'module'); len(loader) used as divisor / schedule (breaks when the loader shrinks)
# corpus: worlds = 2
"""Callbacks and an average of the weights; the settings are a module that is imported by its name."""
import importlib
import sys

from lib.callbacks import CSVLogger, Checkpoint, EarlyStopping, WeightAverage
from lib.learner import Learner

if __name__ == '__main__':
    settings = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else 'settings')
    learner = Learner(settings)
    learner.to_gpus()
    learner.fit([WeightAverage(settings.EMA), CSVLogger('history.csv'), Checkpoint('weights'), EarlyStopping(2)])
