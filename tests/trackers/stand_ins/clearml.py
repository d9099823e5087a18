"""A stand-in for ClearML: a server may have other options for a run than the command line."""

import os
import threading


class Logger:
    _one = None

    @classmethod
    def current_logger(cls):
        return cls._one

    def report_scalar(self, title, series, value, iteration):
        with open("clearml.txt", "a") as file:
            file.write(f"{title} {series} {value} {iteration}\n")

    def report_text(self, text):
        with open("clearml.txt", "a") as file:
            file.write(text + "\n")


class Task:
    _one = None

    @classmethod
    def init(cls, project_name, task_name):
        assert cls._one is None, "a second task in one process"
        assert not os.path.exists("clearml.txt")
        cls._one, Logger._one = cls(), Logger()
        cls._one.id, cls._one.name = "task-1", task_name
        cls._one._edit_lock = threading.RLock()  # as the real one has it: it cannot be pickled
        Logger._one._task = cls._one
        return cls._one

    @classmethod
    def current_task(cls):
        return cls._one

    def connect(self, options):
        if isinstance(options, dict):
            options["momentum"] = 0.5
        else:
            options.lr = 0.02  # what the server says
        return options

    def get_logger(self):
        return Logger._one

    def close(self):
        pass
