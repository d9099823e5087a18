import json
import logging
from pathlib import Path


class ConfigParser:
    def __init__(self, config, resume=None):
        self._config = config
        self.resume = resume
        self.save_dir = Path(config['trainer']['save_dir']) / 'models' / config['name']
        self.save_dir.mkdir(parents=True, exist_ok=True)
        with (self.save_dir / 'config.json').open('wt') as handle:
            json.dump(config, handle, indent=4, sort_keys=False)
        logging.basicConfig(level=logging.INFO, format='%(message)s', handlers=[
            logging.FileHandler(str(self.save_dir / 'info.log')), logging.StreamHandler()])

    @classmethod
    def from_args(cls, args):
        args = args.parse_args()
        with open(args.config) as handle:
            return cls(json.load(handle), args.resume)

    def init_obj(self, name, module, *args, **kwargs):
        module_name = self[name]['type']
        module_args = dict(self[name]['args'])
        module_args.update(kwargs)
        return getattr(module, module_name)(*args, **module_args)

    def __getitem__(self, name):
        return self._config[name]

    def get_logger(self, name):
        return logging.getLogger(name)
