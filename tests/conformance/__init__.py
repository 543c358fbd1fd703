"""Conformance: random worlds played against an independent scheduler, round by round.

Two schedulers carry out one document (``scheduler.md``): the published wheel
``tokenspeed-scheduler==0.1.24`` ("theirs", a black box) and ``tokenspeed.scheduler`` ("ours").
A *world* is everything around them: the configuration, the requests, the timing of results and
acknowledgements, the finishes and aborts. Given the same world they must make the same plans.

========================  =====================================================================
``world``                 the nouns: ``World``, ``Group``, ``Request``
``generate``              a world from one integer seed
``plan``                  an execution plan as plain data
``side``                  one scheduler under play, behind the surface of ``api.md``
``events``                what reaches a scheduler before a plan
``client``                the engine and its users: turns plans into the events of later rounds
``peers``                 the same for the prefill and the decode role, with their peers
``storage``               the store behind the Host tier
``round``                 what happened in one round
``compare``               what must agree, and what a renaming of blocks may change
``liveness``              whether a side still serves its clients
``player``                one side with its calls counted
``play``                  both sides in lockstep, then our side alone to the world's end
``deviations``            where we differ on purpose: the rule and the reason
``coverage``              what the played worlds exercised
``capacity``              the capacity model of both sides, on random configurations
``workers``               child processes, since the reference can end its process
``shrink``                a failing world made small
``report``                what a person reads
========================  =====================================================================

``python -m tests.conformance --help`` plays worlds from the command line.
"""
