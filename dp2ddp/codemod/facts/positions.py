"""Moved to dp2ddp.codemod.model.positions; for what is left of the facts."""

from __future__ import annotations

from dp2ddp.codemod.model.positions import Positions as Positions
from dp2ddp.codemod.model.positions import Span as Span
from dp2ddp.codemod.model.positions import bounds as bounds
