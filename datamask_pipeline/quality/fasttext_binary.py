"""A fastText classifier of two labels: the file, and the probability of one label. Knows no normalisation of text."""

import functools
import hashlib
from pathlib import Path
from typing import Any

import pydantic

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.hub import HubRepository, check_pinned
from datamask_pipeline.settings import Settings, execution_field


class FastTextConfig(Settings):
    """Where the model comes from: a file, or the hub at a pinned commit."""

    model_file: str | None = pydantic.Field(
        None, description="The model on this disk; null takes it from the hub at `revision`."
    )
    revision: str | None = pydantic.Field(
        None, description="Commit hash of the model's repository on the hub."
    )
    endpoint: str | None = execution_field(None, description="Another server that speaks the hub's protocol.")
    cache_dir: str | None = execution_field(None, description="Where downloads are kept.")


class FastTextClassifier:
    """A model, loaded when it is first asked.

    Args:
        config: Where it comes from.
        repository: Its repository on the hub.
        path: Its path there.
        positive: The label whose probability is the score, without ``__label__``.
        negative: The other label.

    Raises:
        ConfigurationError: neither a file nor a revision is given, or one that may move.
        InputError: the file is not there.
    """

    def __init__(
        self, config: FastTextConfig, *, repository: str, path: str, positive: str, negative: str
    ) -> None:
        self._config, self._repository, self._path = config, repository, path
        self._positive, self._negative = f"__label__{positive}", f"__label__{negative}"
        if config.model_file is None and config.revision is None:
            raise ConfigurationError(
                f"give `model_file`, or pin `revision` to a commit of {repository} on the hub"
            )
        if config.revision is not None:
            check_pinned(repository, config.revision)
        if config.model_file is not None and not Path(config.model_file).is_file():
            raise InputError("no such fastText model", file=config.model_file, remedy="correct `model_file`")

    def refuse_unread_revision(self, *files: str | None) -> None:
        """Refuse a commit beside files that are all given, of which none is taken from the hub.

        Args:
            files: What would be taken from there; ``None``: it is.

        Raises:
            ConfigurationError: nothing reads it.
        """
        if self._config.revision is not None and None not in files:
            raise ConfigurationError(
                f"revision {self._config.revision!r} is the commit of {self._repository} on the hub, and nothing is taken "
                f"from there beside {' and '.join(map(repr, files))}; leave `revision` out"
            )

    @functools.cached_property
    def revision(self) -> str:
        """The commit, or the SHA-256 of a file that is given."""
        if self._config.model_file is None:
            return str(self._config.revision)
        with Path(self._config.model_file).open("rb") as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"

    def probability(self, line: str) -> float:
        """Probability of the positive label for one line of text, in 0..1.

        Raises:
            ValueError: the text holds a newline.
        """
        labels, values = self._model.predict(line)
        # fastText's softmax can exceed 1 by rounding.
        value = min(float(values[0]), 1.0)
        return value if labels[0] == self._positive else 1.0 - value

    @functools.cached_property
    def _model(self) -> Any:
        import fasttext

        path = self._local()
        try:
            model = fasttext.load_model(str(path))
            labels, _ = model.predict("the", k=-1)
        except (ValueError, RuntimeError, MemoryError) as error:
            raise InputError(
                f"not a supervised fastText model: {error}", file=str(path), remedy="fetch the file again"
            ) from error
        if set(labels) != {self._positive, self._negative}:
            raise InputError(
                f"the model's labels are not {self._positive} and {self._negative}",
                file=str(path),
                value=sorted(labels),
                remedy="use the model this scorer is named after",
            )
        return model

    def companion(self, path: str) -> Path:
        """Another file of the model's repository, e.g. its tokenizer.

        Raises:
            InputError: the repository has no such file at the pinned commit.
        """
        repository = HubRepository(
            self._repository,
            str(self._config.revision),
            endpoint=self._config.endpoint,
            cache_dir=self._config.cache_dir,
        )
        listed = [file for file in repository.list_files(path.rpartition("/")[0]) if file.path == path]
        if not listed:
            raise InputError(f"repository {self._repository} has no file {path} at that commit")
        return repository.download(listed[0])

    def _local(self) -> Path:
        given = self._config.model_file
        return Path(given) if given is not None else self.companion(self._path)
