"""File formats a crawl's shards come in, one file each: a file as batches in FineWeb's schema. Knows no file system."""
