"""A record to look at: one page per selection, and a browser over documents. Reads the record, never writes to it."""
