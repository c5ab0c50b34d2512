"""An n-gram language model as a ruler of documents: counted in seconds, without training noise. Knows tokens alone."""
