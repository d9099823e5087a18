"""A stand-in for Weights & Biases: what it is told goes into files of the folder of the run."""

import json
import os
import random

config = run = summary = None


class Config:
    def __init__(self, values):
        object.__setattr__(self, "_items", dict(values))

    def __getattr__(self, name):
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self._items[name] = value

    def __getitem__(self, key):
        return self._items[key]

    def __setitem__(self, key, value):
        self._items[key] = value

    def __contains__(self, key):
        return key in self._items

    def keys(self):
        return self._items.keys()

    def items(self):
        return self._items.items()

    def get(self, *args):
        return self._items.get(*args)

    def as_dict(self):
        return dict(self._items)

    def update(self, given, allow_val_change=False):
        self._items.update(given if isinstance(given, dict) else vars(given))


class Run:
    def __init__(self, project, config):
        # names and ids of a run are drawn, in some libraries from the script's own stream
        self.name = f"{random.choice(['brisk', 'calm'])}-{random.randrange(100)}"
        self.id = f"{random.randrange(10**6)}"
        self.project, self.config, self.summary, self.step = project, Config(config), {}, 0
        self.dir, self.watched = os.path.join("wandb", f"run-{self.id}", "files"), {}
        os.makedirs(self.dir)

    def log(self, values, step=None):
        self.step = self.step + 1 if step is None else step
        with open(os.path.join(self.dir, "history.jsonl"), "a") as file:
            told = {**values, **self.watched}
            file.write(json.dumps({"step": self.step, **{k: str(v) for k, v in told.items()}}) + "\n")
        self.summary.update(values)

    def log_artifact(self, artifact):
        with open(os.path.join(self.dir, "artifacts.txt"), "a") as file:
            file.write(f"{artifact.name} {artifact.files}\n")

    def save(self, path):
        assert os.path.exists(path), path

    def watch(self, model, **more):
        """As wandb does: a hook on each parameter, which sees its gradient."""
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda gradient, name=name: self.see(name, gradient))

    def see(self, name, gradient):
        self.watched[f"gradients/{name}"] = gradient.norm().item()

    def finish(self):
        with open(os.path.join(self.dir, "summary.json"), "w") as file:
            json.dump({k: str(v) for k, v in self.summary.items()}, file)
        with open(os.path.join(self.dir, "config.json"), "w") as file:
            json.dump(self.config.as_dict(), file)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.finish()
        return False


class Image:
    made = 0

    def __init__(self, data, caption=""):
        Image.made += 1
        self.text = f"{tuple(data.shape)} {caption}"

    def __str__(self):
        return f"Image {Image.made} {self.text}"


class Artifact:
    def __init__(self, name, type):
        self.name, self.files = name, []

    def add_file(self, path):
        assert os.path.exists(path)
        self.files.append(path)


def init(project=None, config=None, **more):
    global run, summary
    assert run is None, "a second run in one process"
    config = config or {}
    run = Run(project, config if isinstance(config, dict) else vars(config))
    globals()["config"] = run.config
    summary = run.summary
    return run


def log(values, step=None):
    run.log(values, step)


def watch(model, **more):
    run.watch(model)


def save(path):
    run.save(path)


def finish():
    run.finish()
