"""Diversity metrics: set functions over embeddings, one file each. Knows no quality, budget, file or Dagster.

Nothing here imports torch until a metric is asked for: see `datamask_pipeline.families`.
"""
