import json


class Config:
    """cfg.model.type"""

    def __init__(self, **values):
        self.__dict__.update(values)

    @staticmethod
    def fromfile(path):
        with open(path) as f:
            return Config(**json.load(f))
