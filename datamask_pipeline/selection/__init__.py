"""The mask-learning engine: arrays in, mask out. Knows no text, file format or Dagster.

Nothing here imports torch until a selection runs: see `datamask_pipeline.selection.api`.
"""
