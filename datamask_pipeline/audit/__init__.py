"""Questions put to the record, without Dagster: why is a document in or out, what came of it, is it so."""
