"""Evaluation: a causal language model in, a table of benchmark results out.

Knows no arm, selection or store. Importing this package loads nothing heavy: take `EvaluateConfig` from
`.config`, the questions from `.questions`, the work from `.harness`.
"""
