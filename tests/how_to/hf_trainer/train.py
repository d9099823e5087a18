"""Fine-tunes a small BERT; what it writes itself stands around the Trainer."""

import json
import os

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
ids = torch.randint(5, 40, (61, 8))
rows = [{"input_ids": row, "labels": int(row[0] > 20)} for row in ids]
small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=40, **small))
arguments = TrainingArguments(
    "runs",
    per_device_train_batch_size=8,
    dataloader_drop_last=True,
    logging_steps=3,
    save_strategy="no",
    report_to="none",
)
trainer = Trainer(model, arguments, train_dataset=rows)
result = trainer.train()
print("trained, loss", round(result.training_loss, 3))
os.makedirs("results", exist_ok=True)
with open("results/metrics.json", "w") as file:
    json.dump({"loss": result.training_loss}, file)
