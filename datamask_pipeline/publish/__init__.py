"""A subset as a data set that others load: shards, card, Croissant, manifest with a root digest.

Reads the record and changes nothing in it; knows no learner and no configuration of a chain.
"""
