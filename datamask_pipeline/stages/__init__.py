"""The stages, one module each: a configuration and a ``run`` from references to what it reads to those of what it made.

Stages know the record and the libraries; they know nothing of Dagster or of the whole chain, and of each other no more than
the settings and artefacts that they share.
"""
