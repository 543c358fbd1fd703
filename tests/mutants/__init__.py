"""Deliberate mistakes: for each rule of ``scheduler.md`` §5 at least one that a checker must catch.

``table`` lists them, ``python -m tests.mutants`` makes one after the other in a copy of the core
and runs the test that has to fail. ``tests/unit/test_mutants.py`` sees to it that each still
applies.
"""
