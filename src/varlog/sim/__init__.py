"""The deterministic simulator: the real code in a simulated world, and the checks of what came out."""
