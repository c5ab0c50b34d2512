"""Tables and plots that people look at. Knows arrays and rows, no stage and no store."""
