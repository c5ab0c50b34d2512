"""Document vectors: computed by sentence-transformers, or imported and joined by id. Knows no stage.

Importing this loads no torch.
"""
