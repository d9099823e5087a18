import json


class edict(dict):
    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


config = edict()
config.SEED = 0
config.GPUS = '0'
config.OUTPUT_DIR = 'output'
config.CUDNN = edict(BENCHMARK=True)
config.MODEL = edict(NAME='pose_resnet', JOINTS=5, WIDTH=6)
config.LOSS = edict(USE_TARGET_WEIGHT=True)
config.DATASET = edict(DATASET='points')
config.TRAIN = edict(LR=0.01, BATCH_SIZE=8, BEGIN_EPOCH=0, END_EPOCH=1)


def update_config(path):
    with open(path) as f:
        for key, value in json.load(f).items():
            if isinstance(value, dict):
                config[key].update(value)
            else:
                config[key] = value
