"""Gradient estimators of the paper's learner: one file each. Knows no learning rate, batch or budget."""
