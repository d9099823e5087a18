# corpus: idioms = torch.nn.DataParallel; class method (__init__); self.attr = DP(...); len(gpu_ids)/num_gpus from config; yaml/yacs/json config; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap); DataLoader subclass or own class called DataLoader
# corpus: idioms = custom sampler class; sampler=; early stopping; best selection; torch.load; text/csv/json log file; cudnn flags; torch.manual_seed; np.random/random seed; lr_scheduler; optimizer created after wrap; argparse
# corpus: idioms = val loss of this process drives lr / early stop / rollback
# corpus: worlds = 2
# corpus: arguments = -c config.json
"""A template: everything is built by name from a JSON file, the base trainer wraps, a subclass trains."""
import argparse

import numpy as np
import torch

import data_loader.data_loaders as module_data
import model.loss as module_loss
import model.metric as module_metric
import model.model as module_arch
from parse_config import ConfigParser
from trainer import Trainer

SEED = 123
torch.manual_seed(SEED)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
np.random.seed(SEED)


def main(config):
    logger = config.get_logger('train')
    data_loader = config.init_obj('data_loader', module_data)
    valid_data_loader = data_loader.split_validation()

    model = config.init_obj('arch', module_arch)
    logger.info(model)
    criterion = getattr(module_loss, config['loss'])
    metrics = [getattr(module_metric, met) for met in config['metrics']]
    trainer = Trainer(model, criterion, metrics, config=config, data_loader=data_loader, valid_data_loader=valid_data_loader)
    trainer.train()


if __name__ == '__main__':
    args = argparse.ArgumentParser(description='PyTorch Template')
    args.add_argument('-c', '--config', default=None, type=str)
    args.add_argument('-r', '--resume', default=None, type=str)
    main(ConfigParser.from_args(args))
