"""Documents of the standard library, and a model small enough to be asked in a second."""

import argparse
import asyncio
import email
import json
import logging
import multiprocessing
import os
import pathlib
import random
import string
import subprocess
import tarfile
import textwrap
import threading
import unittest
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from datamask_pipeline.pretraining.config import PretrainConfig

_MODULES = (
    *(argparse, asyncio, email, json, logging, multiprocessing, os, pathlib),
    *(random, string, subprocess, tarfile, textwrap, threading, unittest),
)


def _documentation(item: Any) -> str:
    parts = [item.__doc__, *(member.__doc__ for member in vars(item).values() if callable(member))]
    return "\n\n".join(text for text in parts if isinstance(text, str))


@pytest.fixture(scope="session")
def documents() -> list[tuple[str, str]]:
    """(id, text) of every documented class and function of some modules."""
    found = {}
    for module in _MODULES:
        for name, item in vars(module).items():
            if hasattr(item, "__dict__") and isinstance(item.__doc__, str) and len(item.__doc__) > 60:
                found[_documentation(item)] = f"{module.__name__}.{name}"
    return sorted((identity, text) for text, identity in found.items())


@pytest.fixture(scope="session")
def tokenizer(
    documents: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedTokenizerFast:
    from datamask_pipeline.pretraining.tokenizer import train_tokenizer

    directory = tmp_path_factory.mktemp("tokenizer")
    return train_tokenizer((text for _, text in documents), directory, vocab_size=600, sequence_length=64)


@pytest.fixture(scope="session")
def model(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    from datamask_pipeline.pretraining.model import build_model

    config = PretrainConfig(
        hidden_size=32, num_layers=1, num_heads=2, intermediate_size=32, sequence_length=128
    )
    return build_model(config, vocab_size=len(tokenizer), end_of_text=tokenizer.eos_token_id).eval()


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def jsonl() -> Any:
    return write_jsonl
