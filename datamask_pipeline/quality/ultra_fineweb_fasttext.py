"""Ultra-FineWeb's quality classifier: a fastText model over the tokens of its own Llama-style tokenizer.

Source: Wang et al. 2025 (Ultra-FineWeb, arXiv 2505.05427); model ``openbmb/Ultra-FineWeb-classifier``. The
published script drops empty rows and loses the alignment with its input; here every document keeps its row.
Direction: higher is better. Cost: the tokenizer's, about a megabyte of text a second.
"""

import functools
import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.fasttext_binary import FastTextClassifier, FastTextConfig

REPOSITORY = "openbmb/Ultra-FineWeb-classifier"
FILE = "classifiers/ultra_fineweb_en.bin"
TOKENIZER_FILE = "local_tokenizer/tokenizer.json"

#: Raised when the same text would be put to the model in another form.
NORMALISER = "ultra-fineweb-2"

_MANY_NEWLINES = re.compile(r"\n{3,}")
_SPACES = re.compile(r" +")


class UltraFineWebConfig(FastTextConfig):
    """The model, and its tokenizer."""

    tokenizer_file: str | None = pydantic.Field(
        None, description="The classifier's tokenizer.json on this disk; null takes it from the hub."
    )


def normalise(text: str, tokenizer: Any) -> str:
    """The text as one line of tokens: the form the model was trained on.

    Args:
        text: The document.
        tokenizer: The classifier's own, as ``tokenizers`` loads it.
    """
    folded = _MANY_NEWLINES.sub("\n\n", text).lower()
    folded = "".join(
        sign for sign in unicodedata.normalize("NFKD", folded) if unicodedata.category(sign) != "Mn"
    )
    ids = tokenizer.encode(folded, add_special_tokens=False).ids
    # What looks like a special token is a token like any other.
    line = " ".join(tokenizer.decode([number], skip_special_tokens=False) for number in ids)
    line = line.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return _SPACES.sub(" ", line).strip()


class UltraFineWebFastTextScorer(Scorer):
    """Probability of the label ``pos``."""

    name = "ultra_fineweb_fasttext"
    Config = UltraFineWebConfig
    told_by_revision = True
    scale = (0.0, 1.0)
    model = REPOSITORY

    def __init__(self, config: UltraFineWebConfig) -> None:
        self._config = config
        self._classifier = FastTextClassifier(
            config, repository=REPOSITORY, path=FILE, positive="pos", negative="neg"
        )
        self.revision = f"{self._classifier.revision}+{NORMALISER}"
        if config.tokenizer_file is not None:
            if not Path(config.tokenizer_file).is_file():
                raise InputError(
                    "no such tokenizer", file=config.tokenizer_file, remedy="correct `tokenizer_file`"
                )
            tokenizer = hashlib.sha256(Path(config.tokenizer_file).read_bytes()).hexdigest()
            self.revision += f"+tokenizer-sha256:{tokenizer}"
        elif config.model_file is not None:
            if config.revision is None:
                raise ConfigurationError(
                    f"give `tokenizer_file` beside `model_file`, or pin `revision` to a commit of {REPOSITORY}"
                )
            self.revision += f"+tokenizer-{config.revision}"

    def check(self) -> None:
        """Refuse a commit that nothing is taken from.

        Raises:
            ConfigurationError: model and tokenizer are files.
        """
        self._classifier.refuse_unread_revision(self._config.model_file, self._config.tokenizer_file)

    def score(self, batch: ScoreBatch) -> Scores:
        values = [self._classifier.probability(normalise(text, self._tokenizer)) for text in batch.texts()]
        return Scores(np.array(values, dtype=np.float64))

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self._config.tokenizer_file or self._classifier.companion(TOKENIZER_FILE)
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise InputError(f"not a tokenizer.json: {error}", file=str(path)) from error


SCORER = UltraFineWebFastTextScorer
