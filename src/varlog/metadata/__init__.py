"""The real metadata stores behind `ports.metadata`. What the keys and values mean is the repository's concern."""
