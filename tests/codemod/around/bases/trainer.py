import os
import json
import wandb
from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", dataloader_drop_last=True)
trainer = Trainer(model, args)
os.makedirs("plots")
trainer.train()
trainer.save_model("out/best")
trainer.model.save_pretrained("out/bare")
trainer.accelerator.save_state("out/state")
if trainer.is_world_process_zero():
    wandb.log({"run": wandb.run.name})
    with open("done.txt", "w") as file:
        file.write("done")
with args.main_process_first():
    os.makedirs("cache")
