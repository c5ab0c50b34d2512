"""The layouts in which question sets are published, brought into the columns of lm-eval's stock tasks: one file each.

Knows no file and no model: a row in, an item or a reason out. `families.LAYOUTS` finds them by the name in a task's YAML.
"""
