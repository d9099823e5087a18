import logging
import os
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


def create_logger(cfg, cfg_name, phase='train'):
    final_output_dir = Path(cfg.OUTPUT_DIR) / cfg.MODEL.NAME / os.path.basename(cfg_name).split('.')[0]
    print('=> creating {}'.format(final_output_dir))
    final_output_dir.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=str(final_output_dir / '{}.log'.format(phase)), format='%(message)s')
    logger = logging.getLogger()
    logger.setLevel(logging.INFO)
    logging.getLogger('').addHandler(logging.StreamHandler())
    writer = SummaryWriter(log_dir=str(final_output_dir / 'tb'))
    return logger, str(final_output_dir), writer
