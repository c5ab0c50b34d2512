"""The stages, one module each: a configuration and a ``run`` that reads references and returns one.

Stages know the record and the libraries; they know nothing of Dagster, of each other, or of the whole chain.
"""
