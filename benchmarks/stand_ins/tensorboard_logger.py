"""A line to a file for each value."""

import os


class Logger:
    def __init__(self, logdir, flush_secs=2):
        os.makedirs(logdir, exist_ok=True)
        self.path = os.path.join(logdir, "log.txt")

    def log_value(self, name, value, step=None):
        with open(self.path, "a") as file:
            file.write(f"{name} {value} {step}\n")
