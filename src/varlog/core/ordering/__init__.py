"""One module per ordering: the ways in which a segment's entries get their numbers."""
