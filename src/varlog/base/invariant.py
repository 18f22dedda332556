"""Assertions that stay on in production and carry the facts."""


class InvariantBroken(AssertionError):
    """A bug of ours: what must always hold did not. Never caught to go on."""


def invariant(condition: bool, what: str, **facts: object) -> None:
    """Raise `InvariantBroken` with the facts unless the condition holds."""
    if not condition:
        listed = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantBroken(f"{what} ({listed})" if listed else what)
