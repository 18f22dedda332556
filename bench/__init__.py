"""Benches: one file per question. `./run bench` runs them all and prints one table."""
