"""What decides. Plain classes and functions: facts in, decisions out. No await, clock, socket, file or chance."""
