"""Random worlds by the hundred thousand: does every one of them end (``liveness.md``)?

The worlds are those of ``tests/conformance``, over all roles and families in turn. Each side plays
each world alone, with an engine and users of its own, to the world's end: our side as two mirrored
schedulers that must make the same plans, the reference as the plain black box that it is.

==================  ===========================================================================
``numbering``       which world a number stands for
``mirrored``        our side twice, plan by plan
``endings``         the few ways in which a side can end a world
``state``           the file of what was played, so that a run goes on where it was left
``report``          what a person reads
==================  ===========================================================================

``python -m tests.worlds --help`` plays them from the command line.
"""
