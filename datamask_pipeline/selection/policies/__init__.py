"""Selection policies: one file each, its stem the policy's name. Knows no input format."""
