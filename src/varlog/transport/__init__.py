"""Connections: calls, streams and pushes over frames, and the real network that carries them."""
