"""With `threads` fixed in the configuration, models and results are the same on any number of cores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Trains a tokenizer and a model, evaluates it, and prints a digest of all that came of it.
_CHAIN = """
import ctypes, dataclasses, hashlib, json, os, sys
from pathlib import Path
cores, job = int(sys.argv[2]), json.load(sys.stdin)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.harness import evaluate
from datamask_pipeline.evaluation.questions import prepare_questions
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
from datamask_pipeline.pretraining.train import pretrain
folder, texts, threads = Path(sys.argv[1]), job["texts"], job["threads"]
tokenizer = train_tokenizer(texts, folder / "tokenizer", vocab_size=600, sequence_length=64)
config = PretrainConfig(hidden_size=64, num_layers=2, num_heads=2, intermediate_size=128, sequence_length=64,
                        batch_size=8, token_budget=8 * 8 * 64, threads=threads, log_every_steps=2,
                        checkpoint_every_steps=8)
model = pretrain(texts[20:], tokenizer, texts[:20], folder / "run", config)
asked = EvaluateConfig(questions_per_task=6, max_length=128, threads=threads, tasks=["piqa", "arc_challenge", "nq_open"])
documents = [(str(number), text) for number, text in enumerate(texts)]
sets = prepare_questions(asked, folder / "questions", documents)
found = evaluate(model.final.directory, tokenizer, sets, folder / "work", asked)
kept = [path for path in sorted(folder.rglob("*")) if path.suffix in (".safetensors", ".json") and path.is_file()
        and "resume" not in path.parts]
import torch
def asked(file, name, *arguments):
    path = Path(torch.__file__).parent / "lib" / file
    return getattr(ctypes.CDLL(str(path)), name)(*arguments) if path.exists() else None
modes = [asked("libtorch_cpu.so", "mkl_serv_get_dynamic"), asked("libtorch_cpu.so", "mkl_serv_cbwr_get", 1),
         asked("libgomp.so.1", "omp_get_dynamic")] if torch.backends.mkl.is_available() else []
print(json.dumps({
    "modes": modes,
    "files": {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept},
    "curve": model.curve, "bits": model.validation.document_bits,
    "results": [dataclasses.asdict(row) for row in [*found.results, *found.answers]],
}))
"""


def outcome(folder: Path, texts: list[str], *, cores: int, environment: dict[str, str]) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", _CHAIN, str(folder), str(cores)],
        input=json.dumps({"texts": texts, "threads": 2}),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_cores_and_their_number_in_the_environment_change_nothing(
    long_texts: list[str], tmp_path: Path
) -> None:
    one, other = (
        outcome(
            tmp_path / str(cores),
            long_texts,
            cores=cores,
            environment=dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), threads)
            | {"OMP_DYNAMIC": "TRUE"},
        )
        for cores, threads in ((1, "3"), (64, "1"))
    )
    # Threads are not adjusted to load, by neither library; MKL sums in a fixed order (mode "auto").
    assert one["modes"] in ([], [0, 2, 0])
    assert other.keys() == one.keys()
    for what in one:
        assert other[what] == one[what], what
