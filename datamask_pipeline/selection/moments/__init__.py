"""The learner of moment metrics: a relaxed mask by projected gradient, rounding, swaps. Knows no other metric."""
