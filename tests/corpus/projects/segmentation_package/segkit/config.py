import torch

SEED = 5
CLASSES = 3
IGNORE = 255
LR = 0.2
EPOCHS = 2
MAX_STEPS = 8
OUT = 'out/seg'
GPUS = list(range(torch.cuda.device_count()))
