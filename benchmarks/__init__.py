"""The engine against its fair opponents. Knows the public function, its policies and no internals but the solvers' names.

``python -m benchmarks`` runs every short benchmark in a process of its own and writes ``docs/benchmarks.md``;
``--long`` runs the long ones too. A file with these is one benchmark: ``TITLE``,
``QUESTION``, ``LONG`` and ``run(context)``, which returns an `harness.Outcome`.
"""
