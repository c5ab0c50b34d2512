"""The asset graph, made from the flow by one factory. Knows Dagster and the chain, no method.

A file of a stage's name holds the checks of its assets and what their pages show. An asset's step calls
``datamask_pipeline.pipeline.Pipeline.run``, so what it makes is the same as in the plain chain.
"""
