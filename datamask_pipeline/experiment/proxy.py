"""A small network of an arm's tokens, asked what the trigram model is asked. Goes on after a kill.

Shape suffixes: I items, D documents.
"""

import hashlib
import itertools
import shutil
from pathlib import Path

import numpy as np

from datamask_pipeline.experiment.collection import Ruler
from datamask_pipeline.ngram.asked import parted_tokens
from datamask_pipeline.ngram.trigram import Numbers, Texts
from datamask_pipeline.pretraining.config import PretrainConfig


def proxy_bits(learnt: Texts, ruler: Ruler, config: PretrainConfig, folder: Path) -> Numbers:
    """Train a network on these texts, unless that is done, and ask it everything.

    Args:
        learnt: The arm's tokens.
        ruler: What is asked.
        config: Architecture, budget and seed.
        folder: Keeps the training's state while it lasts, then what was found.

    Returns:
        Bits of each item, (I,).

    Raises:
        ConfigurationError: the device is not there.
        DataMaskError: the loss ceased to be finite.
    """
    # Here, as only this needs torch.
    import torch
    from transformers import AutoModelForCausalLM

    from datamask_pipeline.hardware import present_device, torch_threads
    from datamask_pipeline.pretraining.checkpoints import bind, published
    from datamask_pipeline.pretraining.data import keep_tokens
    from datamask_pipeline.pretraining.train import train
    from datamask_pipeline.pretraining.validate import answer_bits, document_bits

    found, states, models = folder / "bits.npy", folder / "resume", folder / "models"
    if found.is_file():
        return np.asarray(np.load(found), np.float64)
    device = present_device(config.device)
    digest = hashlib.sha256(config.model_dump_json().encode() + learnt.tokens_T.tobytes())
    bind(states, digest.hexdigest())
    store = keep_tokens(learnt.tokens_T, learnt.offsets_D, states / "tokens")
    train(config, store, states, models, ruler.vocabulary, ruler.end, None)
    last = published(models)[-1]
    with torch_threads(config.threads), torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(last.directory, local_files_only=True).to(device).eval()
        asked = [([ruler.end, *ids], length + 1) for ids, length in parted_tokens(ruler.right, ruler.encode)]
        edges_D = ruler.held_out_texts.offsets_D
        held_out = [
            [ruler.end, *ruler.held_out_texts.tokens_T[begin:end].tolist()]
            for begin, end in itertools.pairwise(edges_D)
        ]
        length = config.sequence_length
        bits_I = np.array([*answer_bits(model, asked, length), *document_bits(model, held_out, length)])
    private = folder / "bits.part.npy"
    np.save(private, bits_I)
    private.replace(found)
    for used in (states, models):
        shutil.rmtree(used)
    return bits_I
