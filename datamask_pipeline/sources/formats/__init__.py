"""File formats a crawl's shards come in; each reads one open file as batches in FineWeb's schema."""
