"""Planted bugs: the test of the test. Each breaks one rule that the design stands on, by patching production classes.

Production code has no hooks for this. `planted(name)` is a context manager under which a seed is run;
`tests/sim/test_teeth.py` says how many seeds each takes to be caught. A bug is written here the way it
would be written by mistake: small, plausible, and right in fair weather.
"""

from varlog.sim.bugs import client, journal, leader, node, repository, segments, sequencer
from varlog.sim.bugs.registry import BUGS, Bug, find, planted

__all__ = [
    "BUGS",
    "Bug",
    "client",
    "find",
    "journal",
    "leader",
    "node",
    "planted",
    "repository",
    "segments",
    "sequencer",
]
