"""What a conversion can be asked for, by name: read by the command line before anything of the codemod is loaded."""

from __future__ import annotations

STYLES = EXACT, IDIOMATIC = "exact", "idiomatic"
TIERS = PLAIN, LEAN, FULL = "plain", "lean", "full"  # of helpers, from the smallest
CHOICES = {  # names of Options' fields (convert.py)
    "style": STYLES,
    "data": ("share", "shard", "replicate"),
    "join": ("rows", "outputs"),
    "gradients": ("graph", "reducer"),
    "tier": TIERS,
}
