"""Document embeddings by sentence-transformers. Knows no stage and no storage; imports torch only when used."""
