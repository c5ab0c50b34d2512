"""DCLM's quality classifier: OpenHermes and ELI5 against the crawl, as a fastText bigram model.

Source: Li et al. 2024 (DCLM), section 4.4; model ``mlfoundations/fasttext-oh-eli5`` (2.39 GB). DCLM-baseline
keeps scores above 0.018112. Direction: higher is better. Cost: some thousand words a millisecond.
"""

import numpy as np

from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.fasttext_binary import FastTextClassifier, FastTextConfig

REPOSITORY = "mlfoundations/fasttext-oh-eli5"
FILE = "openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train.bin"

#: Raised when the same text would be put to the model in another form.
NORMALISER = "dclm-1"


def normalise(text: str) -> str:
    """The text as one line: the form the model was trained on."""
    return " ".join(text.strip().splitlines())


class DclmFastTextScorer(Scorer):
    """Probability of the label ``hq``."""

    name = "dclm_fasttext"
    Config = FastTextConfig
    told_by_revision = True
    scale = (0.0, 1.0)
    model = REPOSITORY

    def __init__(self, config: FastTextConfig) -> None:
        self.config = config
        self._classifier = FastTextClassifier(
            config, repository=REPOSITORY, path=FILE, positive="hq", negative="cc"
        )
        self.revision = f"{self._classifier.revision}+{NORMALISER}"

    def check(self) -> None:
        """Refuse a commit that nothing is taken from.

        Raises:
            ConfigurationError: the model is a file.
        """
        self._classifier.refuse_unread_revision(self.config.model_file)

    def score(self, batch: ScoreBatch) -> Scores:
        # splitlines knows more line ends than fastText minds, so no newline is left.
        values = [self._classifier.probability(normalise(text)) for text in batch.texts()]
        return Scores(np.array(values, dtype=np.float64))


SCORER = DclmFastTextScorer
