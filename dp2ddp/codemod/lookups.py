"""What libraries find by names that the text of a program does not tell."""

from __future__ import annotations

from dp2ddp.codemod.model.reach import Lookups

LOOKUPS = Lookups().with_libraries(
    anything=[
        f"hydra.utils.{name}" for name in ("instantiate", "call", "get_class", "get_method", "get_object")
    ],
    of_caller=["fire.Fire"],
    plain=("torch.", "numba.", "click.", "numpy.", "tqdm."),
)
