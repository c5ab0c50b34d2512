"""The stages, one module each: a configuration and a ``run`` from references to what it reads to those of what it made.

Stages know the record and the libraries; they know nothing of Dagster, of each other, or of the whole chain.
"""
