"""MLflow: a run by context, its id in the name of a folder, parameters, metrics, artifacts, the model."""

import argparse
import os

import mlflow
import mlflow.pytorch
import torch
import torch.nn as nn
from mlflow import log_metric

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()
torch.manual_seed(2)
mlflow.set_tracking_uri("file:./mlruns")
experiment = mlflow.set_experiment("sums")
print("experiment", experiment.experiment_id, experiment.name)
net = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
with mlflow.start_run(run_name="first") as run:
    mlflow.log_params(vars(args))
    run_id = mlflow.active_run().info.run_id
    assert run_id == run.info.run_id
    os.makedirs(os.path.join("out", run_id), exist_ok=True)
    for step in range(6):
        x = torch.randn(7, 4)
        loss = (net(x.cuda()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mlflow.log_metrics({"loss": loss.item()}, step=step)
        log_metric("lr", optimizer.param_groups[0]["lr"])
    path = os.path.join("out", run_id, "net.pt")
    torch.save(net.module.state_dict(), path)
    mlflow.log_artifact(path)
    mlflow.pytorch.log_model(net.module, "model")
    print("in", mlflow.get_artifact_uri(), "loss", loss.item())
print("active", mlflow.active_run())
