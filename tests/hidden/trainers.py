"""One Trainer for each row of docs/hf_trainer.md that is cheap to train: `python trainers.py FOLDER`.

A callback keeps gradients and parameters of every step: rank 0 writes them into FOLDER, in a file for each Trainer.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

Row = dict[str, Any]


class Rows(Dataset[Row]):
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return dict(self.rows[index])


class Noisy(Rows):
    def __getitem__(self, index: int) -> Row:
        ids = self.rows[index]["input_ids"].clone()
        ids[torch.randint(len(ids), (1,))] = 3
        return {**self.rows[index], "input_ids": ids}


class Stream(IterableDataset[Row]):
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(Rows(self.rows))


class Weighted(Trainer):
    weight: tuple[float, ...] = (1.0, 2.0, 4.0)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = cross_entropy(outputs.logits, labels, weight=outputs.logits.new_tensor(self.weight))
        return (loss, outputs) if return_outputs else loss


class Mean(Weighted):
    weight = (1.0, 1.0, 1.0)


class Keep(TrainerCallback):
    def __init__(self) -> None:
        self.steps: dict[str, Any] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        for name, parameter in more["model"].named_parameters():
            if parameter.grad is not None:
                self.steps[f"{state.global_step + 1}:{name}"] = parameter.grad.numpy(force=True)


def drawn(count: int, length: int, uneven: bool, seed: int = 0) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(5, 60, (count, length), generator=generator)
    sizes = torch.randint(6, length + 1, (count,), generator=generator).tolist()
    cut = [row[:size] if uneven else row for row, size in zip(rows, sizes, strict=True)]
    return [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in cut]


def classes(count: int, uneven: bool = False) -> list[Row]:
    return [{**row, "labels": int(row["input_ids"][0] % 3)} for row in drawn(count, 12, uneven)]


def words(count: int) -> list[Row]:
    """Labels of uneven length: the first third or less is not trained on."""
    rows = drawn(count, 12, uneven=False)
    ignored = [torch.arange(12) < index % 5 for index in range(count)]
    return [
        {**row, "labels": torch.where(mask, -100, row["input_ids"])}
        for row, mask in zip(rows, ignored, strict=True)
    ]


def padded(rows: list[Row]) -> Row:
    ids = [row["input_ids"] for row in rows]
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    labels = torch.stack([torch.as_tensor(row["labels"]) for row in rows])
    return {
        "input_ids": pad(ids),
        "attention_mask": pad([torch.ones_like(each) for each in ids]),
        "labels": labels,
    }


def bert(dropout: float = 0.0) -> Any:
    set_seed(1)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    chances = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = BertConfig(vocab_size=60, max_position_embeddings=16, num_labels=3, **size, **chances)
    return BertForSequenceClassification(config).double()


def gpt2() -> Any:
    set_seed(1)
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 12, "bos_token_id": 1, "eos_token_id": 2}
    chances = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, **size, **chances)).double()


def lora() -> Any:
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=False)
    return get_peft_model(bert(0.1), adapter).double()


def summed(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    return (
        cross_entropy(outputs.logits, labels, reduction="sum")
        / torch.as_tensor(num_items_in_batch).flatten()[0]
    )


def trainer(
    model: Callable[[], Any], rows: Any, kind: Any = Trainer, loss: Any = None, **arguments: Any
) -> Trainer:
    usual = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 1,
        "learning_rate": 0.01,
        "save_strategy": "no",
    }
    said = TrainingArguments("runs", report_to="none", disable_tqdm=True, **{**usual, **arguments})
    return kind(model=model(), args=said, train_dataset=rows, data_collator=padded, compute_loss_func=loss)  # type: ignore[no-any-return]


def on_rank_0(model: Callable[[], Any], rows: Any) -> Trainer:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    both = {"dispatch_batches": True, "split_batches": True}
    return trainer(model, rows, per_device_train_batch_size=8 * ranks, accelerator_config=both)


DROPOUT = partial(bert, 0.1)
TRAINERS: dict[str, Callable[[], Trainer]] = {  # by the first cell of its row
    "nothing special: BERT, 64 rows": lambda: trainer(bert, Rows(classes(64))),
    "a language model, labels of uneven length": lambda: trainer(gpt2, Rows(words(64))),
    "dropout, rows of equal width": lambda: trainer(DROPOUT, Rows(classes(64))),
    "LoRA by peft": lambda: trainer(lora, Rows(classes(64))),
    "`gradient_accumulation_steps=2`": lambda: trainer(gpt2, Rows(words(64)), gradient_accumulation_steps=2),
    "`max_steps`, `warmup_steps`, schedules": lambda: trainer(
        bert, Rows(classes(64)), max_steps=5, warmup_steps=2, lr_scheduler_type="cosine"
    ),
    '`train_sampling_strategy="group_by_length"`': lambda: trainer(
        bert, Rows(classes(64, uneven=True)), train_sampling_strategy="group_by_length"
    ),
    "a last batch that is short: 61 rows": lambda: trainer(bert, Rows(classes(61))),
    "an odd number of batches: 56 rows": lambda: trainer(bert, Rows(classes(56))),
    "61 rows and `dataloader_drop_last=True`": lambda: trainer(
        bert, Rows(classes(61)), dataloader_drop_last=True
    ),
    "an `IterableDataset`": lambda: trainer(bert, Stream(classes(64)), max_steps=4),
    "an `IterableDataset` that ends at 61 rows": lambda: trainer(bert, Stream(classes(61)), max_steps=4),
    "dropout, batches padded to their longest row": lambda: trainer(DROPOUT, Rows(classes(64, uneven=True))),
    "a collator or a data set that draws random numbers": lambda: trainer(bert, Noisy(classes(64))),
    "random rows, [read on rank 0](#random-rows)": lambda: on_rank_0(bert, Noisy(classes(64))),
    "`label_smoothing_factor`": lambda: trainer(bert, Rows(classes(64)), label_smoothing_factor=0.1),
    "`compute_loss_func` that divides by `num_items_in_batch`": lambda: trainer(
        bert, Rows(classes(64)), loss=summed
    ),
    "`average_tokens_across_devices=False`, uneven labels": lambda: trainer(
        gpt2, Rows(words(64)), average_tokens_across_devices=False
    ),
    "`compute_loss` overridden: a mean over rows": lambda: trainer(bert, Rows(classes(64)), Mean),
    "`compute_loss` overridden: class weights": lambda: trainer(bert, Rows(classes(64)), Weighted),
}


def main() -> None:
    for number, make in enumerate(TRAINERS.values()):
        kept = Keep()
        training = make()
        training.add_callback(kept)
        training.train()
        if training.is_world_process_zero():
            np.savez(os.path.join(sys.argv[1], f"{number}.npz"), **kept.steps)


if __name__ == "__main__":
    main()
