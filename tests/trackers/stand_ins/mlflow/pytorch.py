"""The flavour for torch."""

import os

import torch

import mlflow


def log_model(model, path):
    torch.save(model.state_dict(), os.path.join(mlflow.active_run().folder, path + ".pt"))
