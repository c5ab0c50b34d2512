"""An arm for every kind of metric, policy and budget."""

from typing import Any

BRIEF = {"num_restarts": 1, "num_kicks": 1}
"""Searches of a metric whose others take seconds; what is recorded of a mask is not of how good it is."""
ARMS: dict[str, dict[str, Any]] = {
    "disf": {"diversity": "DiSF_uncentred"},
    "centred": {"diversity": "DiSF", **BRIEF},
    "facility": {"diversity": "Facility"},
    "clusters": {
        "diversity": "Facility",
        "diversity_options": {"Facility": {"exact_rows": 8, "num_landmarks": 16}},
    },
    "graph": {"diversity": "Pair_graph", "lamb": 0.3, "block_rows": 30, "quality_pruning": 0.2},
    "facility_quotas": {"diversity": "Facility", "quotas": {"tiny-2024-10": 0.4, "tiny-2024-18": 0.6}},
    "mixture": {"diversity": {"Facility": 0.5, "Pair_simi": 0.5}},
    "mixture_blocks": {
        "diversity": {"Facility": 0.5, "LogDet": 0.5},
        "block_rows": 30,
        "quality_pruning": 0.2,
        **BRIEF,
    },
    "unbounded": {"diversity": {"Facility": 0.5, "DiSF": 0.5}, **BRIEF},
    "greedy": {"policy": "greedy"},
    "topk": {"policy": "quality_topk"},
    "drawn": {"policy": "random", "seed": 1},
    "semdedup": {"policy": "semdedup"},
    "gist": {"policy": "gist"},
    "partitions": {"policy": "partitioned_greedy", "diversity": "Pair_graph", "num_partitions": 3},
    "gradient": {"policy": "policy_gradient", "num_epochs": 50},
    "quotas": {"quotas": {"tiny-2024-10": 0.5, "tiny-2024-18": 0.5}},
    "pruned": {"quality_pruning": 0.3},
    "outliers": {"outlier_deviations": 1.0},
    "tokens": {"num_tokens": 2_000},
    "facility_tokens": {"diversity": "Facility", "num_tokens": 2_000},
    "documents": {"num_documents": 11},
    "blocks": {"block_rows": 30},
    "facility_blocks": {"diversity": "Facility", "block_rows": 30, "quality_pruning": 0.2},
    "unscaled": {"normalisation": "none"},
    "diversity": {"lamb": 0.0},
    "quality": {"lamb": 1.0},
    "zscore": {"score_normalisation": "zscore"},
    "seeded": {"seed": 3},
    "everything": {"ratio": 1.0},
}
