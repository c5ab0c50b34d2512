"""An experiment over the tiny chain's crawls, as a file: six arms, four draws, two pools unless a test says otherwise."""

from pathlib import Path
from typing import Any

import yaml

ARMS: dict[str, Any] = {
    "random": {},
    "random_again": {},
    "shuffled": {"shuffled_share": 0.5},
    "collapse_quality": {"select": {"policy": "quality_topk"}, "collapse": 0.98},
    "joint": {"select": {"policy": "datamask", "lamb": 0.5}},
    "random_lengths_of_joint": {"lengths_of": "joint"},
}


def experiment_file(folder: Path, tiny_config_file: Path, **changes: Any) -> Path:
    chain = yaml.safe_load(tiny_config_file.read_text())
    used = ("source", "embed", "score", "releases", "pool", "tokenizer", "evaluate", "store")
    chain = {name: value for name, value in chain.items() if name in used}
    chain["source"]["options"]["root"] = "${data}/crawls"
    values = {
        "name": "small",
        "question": "Does joint selection beat the simple rival?",
        "contrast": ["joint", "collapse_quality"],
        "redraws": 4,
        "num_random": 3,
        "ratio": 0.3,
        "pools": {"whole": {}, "equal": {"first_tokens": 40}},
        "arms": ARMS,
        "chain": chain,
        **changes,
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path
