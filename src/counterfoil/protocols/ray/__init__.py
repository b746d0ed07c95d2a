"""Where a run's work is done: in this process, or by workers that Ray starts on this machine or on many.

    execution.py    what a user says: which executor, how many workers, which cluster
    leases.py       who works on what: plain bookkeeping without a process or a tensor
    crew.py         workers that come and go; leases are handed out, reports come back
    ray.py          the workers as actors of Ray, with nodes.py, which shares out the cores
    climbing.py     a worker for the FMR protocol, with feed.py, which brings it pictures
    fmr.py          the FMR protocol over a crew
    stages.py       a worker for the staged protocols, and what spreads their batches over a crew
    spreading.py    a crew for a staged protocol, if one is asked for

The driver holds the run's lock and alone commits; workers write what they made under temporary names and say so. A worker
that dies loses what was not committed, and that is done again by another.
"""

from __future__ import annotations
