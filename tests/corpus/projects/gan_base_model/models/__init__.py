import importlib

from .base_model import BaseModel


def find_model_using_name(model_name):
    modellib = importlib.import_module('models.' + model_name + '_model')
    model = None
    target = model_name.replace('_', '') + 'model'
    for name, cls in modellib.__dict__.items():
        if name.lower() == target.lower() and issubclass(cls, BaseModel):
            model = cls
    return model


def create_model(opt):
    instance = find_model_using_name(opt.model)(opt)
    print('model [%s] was created' % type(instance).__name__)
    return instance
