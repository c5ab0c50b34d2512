"""The learner of similarities along a graph: greedy, exchanges, a relaxation with a bound. Knows no other metric."""
