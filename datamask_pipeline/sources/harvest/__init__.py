"""English texts that a Python installation carries: docstrings, documentation pages, long descriptions."""
