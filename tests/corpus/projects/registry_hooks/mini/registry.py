class Registry:
    def __init__(self, name):
        self.name = name
        self._modules = {}

    def register(self, cls):
        assert cls.__name__ not in self._modules
        self._modules[cls.__name__] = cls
        return cls

    def build(self, cfg, **kwargs):
        cfg = dict(cfg)
        return self._modules[cfg.pop('type')](**cfg, **kwargs)


MODELS = Registry('models')
HOOKS = Registry('hooks')
