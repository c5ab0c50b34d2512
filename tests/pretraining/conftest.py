"""Real text at hand everywhere: the standard library's own documentation."""

import email
import json
import logging
import os
import pathlib
import string
import unittest
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.tokenizer import train_tokenizer

_MODULES = (email, json, logging, os, pathlib, string, unittest)
_TINY = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 32, "sequence_length": 16}
_SHORT = {"batch_size": 4, "token_budget": 12 * 4 * 16, "log_every_steps": 2, "checkpoint_every_steps": 4}


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Docstrings, every one different."""
    found = {item.__doc__ for module in _MODULES for item in vars(module).values()}
    return sorted(text for text in found if isinstance(text, str) and len(text) > 40)[:120]


@pytest.fixture(scope="session")
def long_texts() -> list[str]:
    """A class or module at a time, with prose enough to make questions of."""
    found = {
        "\n\n".join(
            text
            for text in (
                item.__doc__,
                *(member.__doc__ for member in vars(item).values() if callable(member)),
            )
            if isinstance(text, str)
        )
        for module in _MODULES
        for item in (module, *vars(module).values())
        if hasattr(item, "__dict__")
    }
    return sorted(text for text in found if len(text) > 200)


@pytest.fixture(scope="session")
def tokenizer(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return train_tokenizer(texts, tmp_path_factory.mktemp("tokenizer"), vocab_size=400, sequence_length=16)


@pytest.fixture(scope="session")
def config() -> PretrainConfig:
    """Twelve steps of a model of some thousand parameters."""
    return PretrainConfig(**_TINY, **_SHORT)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run"
