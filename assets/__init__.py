"""The asset graph: one file a stage, its asset checks below the asset. Knows Dagster and the chain, no method.

An asset's body calls one method of ``datamask_pipeline.pipeline.Pipeline``; what it makes is the same as in the
plain chain. Beside the stages: partitions, jobs, sensors and schedules.
"""
