"""A small random BERT learns to tell questions from statements: transformers' Trainer, without a download.

Nobody writes DataParallel here: the Trainer wraps the model by itself where plain python sees several GPUs.
"""

import random

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from ddp_helpers import join_ranks

QUESTIONS = "who what where when why how".split()
WORDS = QUESTIONS + "the a cat dog bird house tree sees likes eats is red blue small big".split()
LENGTH = 8


class Sentences(Dataset):
    def __init__(self, count, seed):
        draw = random.Random(seed)
        self.rows = [draw.choices(range(len(WORDS)), k=LENGTH) for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": torch.tensor(row), "labels": int(row[0] < len(QUESTIONS))}


def accuracy(prediction):
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": float(right.mean())}


def main():
    set_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        output_dir="runs",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        dataloader_drop_last=True,  # 100 rows: without it torchrun fills the last batch up
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Sentences(100, seed=0),
        eval_dataset=Sentences(32, seed=1),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model("runs/final")


if __name__ == "__main__":
    join_ranks()
    main()
