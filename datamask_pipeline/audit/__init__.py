"""Questions put to the record, without Dagster: why is a document in or out, and what came of it."""
