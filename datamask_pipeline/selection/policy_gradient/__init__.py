"""The paper's learner: sampled masks, one reward each, and estimators of the gradient. Knows no certificate."""
