"""What a log can do, by its ordering: one table for the repository, which refuses, and for clients, which ask."""

CAPABILITIES: dict[str, frozenset[str]] = {
    "cut": frozenset({"atomic_batch", "many_streams", "many_writers"}),
    "leader": frozenset({"atomic_batch", "many_writers"}),
    "sequencer": frozenset({"conditional_append", "many_streams", "many_writers"}),
}

ALONE: dict[str, frozenset[str]] = {"sequencer": frozenset({"atomic_batch"})}
"""What is added where there is one stream only."""

KNOWN = sorted({name for table in (CAPABILITIES, ALONE) for names in table.values() for name in names})
"""All there are."""


def capabilities(ordering: str, *, streams: int = 1, journal: bool = False) -> frozenset[str]:
    """Of a log with so many streams; a journal has one writer at a time, whoever leads it."""
    found = CAPABILITIES.get(ordering, frozenset())
    if streams == 1:
        found |= ALONE.get(ordering, frozenset())
    return found - {"many_writers"} if journal else found
