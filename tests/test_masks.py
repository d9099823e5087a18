"""What is shown of arguments."""

from __future__ import annotations

import shlex

import pytest

from dp2ddp.masks import masked


@pytest.mark.parametrize(
    "line",
    [
        "--api-key SECRET",
        "--api_key SECRET",
        "--apikey SECRET",
        "--apiKey SECRET",
        "--hf-token SECRET",
        "-token SECRET",
        "--token -SECRET",
        "--secret SECRET",
        "--client-secret-value SECRET",
        "--password SECRET",
        "--db.passwd SECRET",
        "--PASSWORD SECRET",
        "--key-value SECRET",
        "--tokens SECRET,SECRET",
        "--api-key=SECRET",
        "--api-key='SECRET, and a SECRET'",
        "key=SECRET",
        "+wandb.api_key=SECRET",
        "WANDB_API_KEY=SECRET",
        "HF_TOKEN=SECRET",
        "--password=1234SECRET",
        "--set auth.password=SECRET",
        """--config '{"api_key": "SECRET", "lr": 1}'""",
        "--config '{token:SECRET,lr:1}'",
        "--url 'https://host/x?lr=1&token=SECRET&b=2'",
        "--data postgres://me:SECRET@host/db",
        "--converted-arguments '--lr 1 --api-key SECRET'",
        '''--converted-arguments "--api-key 'a SECRET'"''',
        "--converted-arguments '--lr 1 key=SECRET'",
        '--text "don\'t: token=SECRET"',
    ],
)
def test_a_secret_is_not_shown(line: str) -> None:
    shown = masked(["dp2ddp", "verify", "train.py", "--", *shlex.split(line), "--epochs", "3"])

    assert "SECRET" not in " ".join(shown)
    assert any("***" in word for word in shown)
    assert shown[:4] == ["dp2ddp", "verify", "train.py", "--"]
    assert shown[-2:] == ["--epochs", "3"]


@pytest.mark.parametrize(
    "line",
    [
        "--lr 0.1 --epochs 3 data/train",
        "--max-tokens 512 --pad-token-id 0 --key-dim 64",
        "--max_tokens=512 num_tokens=1e6",
        "--tokenizer gpt2 --keypoints coco.json",
        "--lr -1 --name 'a b' --text \"it's new\"",
        "https://host:80/data?size=3",
        "--config '{\"lr\": 0.1}'",
        "--verbose --token --lr 1",  # an option without a value
        "model.width=3",
    ],
)
def test_what_is_no_secret_is_shown_as_it_was_given(line: str) -> None:
    words = shlex.split(line)

    assert masked(words) == words


@pytest.mark.parametrize("value", ["1234", "0"])
def test_a_number_may_be_a_password(value: str) -> None:
    assert masked(["--password", value, f"password={value}", "--token", value]) == [
        "--password", "***", "password=***", "--token", "***",
    ]  # fmt: skip
