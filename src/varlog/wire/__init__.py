"""Bytes: frames, batches, stored records, messages. Pure encoding and decoding; no I/O, no decisions."""
