"""Independent streams of randomness from one seed. Knows no draw."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *stream: str | int) -> torch.Generator:
    """A CPU generator for one named stream, e.g. ``generator(seed, "rollouts", epoch)``.

    A stream does not depend on what other streams drew, so a resumed run draws what an undisturbed one does.
    """
    name = "/".join(str(part) for part in (seed, *stream))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
