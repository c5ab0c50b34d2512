"""Pretraining: texts in, a small causal language model out.

Knows no arm, selection, store or benchmark. Importing this package loads nothing heavy: take
`PretrainConfig` from `.config`, the work from `.train`, `.tokenizer` and `.validate`.
"""
