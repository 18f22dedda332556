"""What everything else stands on: ids, errors, limits, invariants. Imports nothing of ours."""
