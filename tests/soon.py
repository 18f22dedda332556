"""Waiting for tasks of one event loop that wait for nothing outside of it."""

import asyncio

STEPS = 10
STEP_S = 0.005
"""Longer than any pause that they make."""


async def soon() -> None:
    """Until all that is under way has come to rest.

    In steps: whatever is due when a step begins has had its turn when the step ends, however long the whole process
    was kept from its work meanwhile. One long sleep would be over before anybody else had had a turn.
    """
    for _ in range(STEPS):
        await asyncio.sleep(STEP_S)
