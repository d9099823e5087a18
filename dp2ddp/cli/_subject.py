"""From the command line to what is verified: the script, its conversion, the working folder."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.cli._experiment import Subject
from dp2ddp.cli._scripts import conversion_of, existing_script
from dp2ddp.errors import RunError


def subject_of(
    script: Path, converted: Path | None, arguments: tuple[str, ...], steps: int | None, patience: float
) -> tuple[Subject, str, int | None]:
    """The subject, the line that starts the converted script, and the number of devices that the script names."""
    existing_script(script)
    data, name, launch, world = _given(converted) if converted else _converted(script)
    subject = Subject(
        script=script,
        name=str(script),
        converted=data,
        converted_name=name,
        arguments=arguments,
        folder=Path.cwd().resolve(),
        steps=steps,
        patience=patience,
    )
    return subject, launch, world


def _given(converted: Path) -> tuple[bytes, str, str, int | None]:
    existing_script(converted)
    return (
        converted.read_bytes(),
        converted.name,
        f"torchrun --standalone --nproc-per-node N {converted}",
        None,
    )


def _converted(script: Path) -> tuple[bytes, str, str, int | None]:
    conversion = conversion_of(script)
    if not conversion.changed:
        raise RunError(
            f"{script}: nothing to convert, so nothing to compare; name your own version with --converted"
        )
    data = conversion.before.encoded(conversion.after)
    return data, f"{script.stem}_ddp.py", conversion.launch, conversion.world
