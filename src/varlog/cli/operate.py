"""What `varlog node` does with nodes of a running cluster: add, drain, check, rm."""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from varlog.base.errors import InvalidArgument, VarlogError
from varlog.cli.frame import (
    SCHEME,
    Arguments,
    Commands,
    add_command,
    cluster_url,
    confirmed,
    positive,
    somebody_there,
    with_cluster,
)
from varlog.cli.output import Column, Printer, render_table, size, styled, to_json

if TYPE_CHECKING:
    from varlog.client import Cluster, NodeCheck, StreamCheck

LOOK_EVERY_S = 0.2
STUCK_S = 10.0
"""A drain that has moved nothing for so long, and says why, is no longer waited for."""


def register(family: Commands) -> None:
    add = add_command(family, "add", add_node, "tell how another storage node joins this cluster")
    add.add_argument("--zone", default="", help="failure zone of the new node")
    add.add_argument("--data", default="DIR", metavar="DIR", help="its folder for data")
    drain = add_command(family, "drain", drain_node, "move everything off a node; appends go on")
    drain.add_argument("node", type=positive, metavar="N")
    drain.add_argument("--undo", action="store_true", help="let it be used again")
    drain.add_argument("--no-wait", action="store_true", help="only begin it")
    check = add_command(
        family,
        "check",
        check_node,
        "say whether a node can be stopped now, and which streams would suffer",
        epilog="Exit status 0: it can; at most, appends to its streams pause for a moment. 1: it cannot.",
    )
    check.add_argument("node", type=positive, metavar="N")
    remove = add_command(family, "rm", remove_node, "remove a node for good; refused while anything hangs on it")
    remove.add_argument("node", type=positive, metavar="N")
    remove.add_argument("--force", action="store_true", help="it is lost for good: give up its copies of ended streams")
    remove.add_argument("--yes", action="store_true", help="do not ask")


# ---------------------------------------------------------------- add


def add_node(arguments: Arguments) -> None:
    async def work(cluster: "Cluster") -> int:
        return len(await cluster.nodes())

    nodes = with_cluster(arguments, work)
    command = ["varlog", "node", "start", "--repository", cluster_url(arguments).removeprefix(SCHEME)]
    command += ["--data", arguments.data, *(["--zone", arguments.zone] if arguments.zone else [])]
    text = " ".join(command)
    Printer(arguments.output).done(
        {"command": command, "nodes": nodes},
        f"a node joins by being started; the cluster has {nodes}. On the machine of the new one:\n\n    {text}\n\n"
        "with --listen HOST:PORT where other machines have to reach it (by itself it serves this machine alone), and\n"
        "--advertise HOST:PORT if they do so by another address. It gets its id from the cluster, and new streams;\n"
        "`varlog node ls` shows when it is there.",
    )


# ---------------------------------------------------------------- drain


def drain_node(arguments: Arguments) -> None:
    async def work(cluster: "Cluster") -> "NodeCheck":
        await cluster.drain_node(arguments.node, undo=arguments.undo)
        if arguments.undo or arguments.no_wait:
            return await cluster.check_node(arguments.node)
        return await _wait_drained(cluster, arguments.node)

    check = with_cluster(arguments, work)
    Printer(arguments.output).done(_drain_facts(check), _drain_text(check))


async def _wait_drained(cluster: "Cluster", node: int) -> "NodeCheck":
    from varlog.cli.progress import Progress

    check = await cluster.check_node(node)
    total = left = _left(check)
    moved_at = time.monotonic()
    with Progress("streams", total, note="leave the node") as progress:
        while check.streams:
            await asyncio.sleep(LOOK_EVERY_S)
            check = await cluster.check_node(node)
            if _left(check) != left:
                progress.advance(max(0, left - _left(check)))
                left, moved_at = _left(check), time.monotonic()
            elif time.monotonic() - moved_at > STUCK_S:
                await _give_up_if_stuck(cluster, check)
    return check


def _left(check: "NodeCheck") -> int:
    """A stream that moves ends, and then its copy moves: two steps."""
    return 2 * check.node.open_streams + check.node.ended_streams


async def _give_up_if_stuck(cluster: "Cluster", check: "NodeCheck") -> None:
    logs = {stream.log for stream in check.streams}
    for status in (await cluster.status()).logs:
        if status.log.name in logs and status.trouble:
            raise VarlogError(
                f"node {check.node.id} goes on draining, but {_streams(check.node.open_streams, 'open')} and "
                f"{_streams(check.node.ended_streams, 'ended')} cannot leave it yet; "
                f"log {status.log.name}: {status.trouble}; add a node, or take it back with --undo"
            )


def _drain_facts(check: "NodeCheck") -> dict[str, Any]:
    return {
        "node": check.node.id,
        "draining": check.node.draining,
        "open_streams": check.node.open_streams,
        "ended_streams": check.node.ended_streams,
        "stored_bytes": sum(stream.stored_bytes for stream in check.streams),
    }


def _drain_text(check: "NodeCheck") -> str:
    node = check.node
    if not node.draining:
        return f"node {node.id} does not drain any more: it may get new streams"
    if not check.streams:
        return f"node {node.id} is drained: nothing is left on it; it can be stopped, and removed"
    held = sum(stream.stored_bytes for stream in check.streams)
    rest = f"{_streams(node.open_streams, 'open')} and copies of {_streams(node.ended_streams, 'ended')}, {size(held)}"
    return f"node {node.id} drains: {rest}, to move; `varlog node ls` shows how many are left"


def _streams(number: int, kind: str) -> str:
    return f"{number:,} {kind} stream{'s' * (number != 1)}"


# ---------------------------------------------------------------- check


def check_node(arguments: Arguments) -> int:
    check = with_cluster(arguments, lambda cluster: cluster.check_node(arguments.node))
    printer = Printer(arguments.output)
    rows = [_check_row(stream, check.pause) for stream in sorted(check.streams, key=_worst_first)]
    if printer.json:
        facts = {"node": check.node.id, "stoppable": check.stoppable, "reason": check.reason, "streams": rows}
        print(to_json(facts))
    else:
        print(styled(_verdict(check), "green" if check.stoppable else "red", printer.stream))
        if rows:
            print("\n" + "\n".join(render_table(CHECK_COLUMNS, rows, printer.stream)))
    return 0 if check.stoppable else 1


def _worst_first(stream: "StreamCheck") -> tuple[bool, bool, bool, str, int, int]:
    return (not stream.unreadable, not stream.stops, not stream.open, stream.log, stream.segment, stream.stream)


CHECK_COLUMNS = [
    Column("log"),
    Column("stream", right=True),
    Column("state"),
    Column("role"),
    Column("if_stopped", "if it is stopped"),
    Column("copies", "copies left", right=True),
    Column("stored_bytes", "on it", show=size, right=True),
]


def _check_row(stream: "StreamCheck", pause: float) -> dict[str, Any]:
    effects = []
    if stream.stops:
        effects.append("takes no appends until it is back")
    elif stream.open:
        effects.append(f"another takes its place after {pause:g} s")
    if stream.unreadable:
        effects.append("cannot be read until it is back")
    return {
        "log": stream.log,
        "segment": stream.segment,
        "stream": stream.stream,
        "state": "open" if stream.open else "ended",
        "role": "primary" if stream.primary else "backup",
        "if_stopped": "; ".join(effects) or "stays readable",
        "copies": f"{stream.copies_left} of {stream.copies_wanted}",
        "copies_left": stream.copies_left,
        "copies_wanted": stream.copies_wanted,
        "stops": stream.stops,
        "unreadable": stream.unreadable,
        "stored_bytes": stream.stored_bytes,
    }


def _verdict(check: "NodeCheck") -> str:
    node = check.node
    stops = sum(stream.stops for stream in check.streams)
    unreadable = sum(stream.unreadable for stream in check.streams)
    if check.stoppable:
        text = (
            f"node {node.id} can be stopped" if node.connected else f"node {node.id} is not connected, and not needed"
        )
        if not check.drained:
            text += f": appends to {_streams(node.open_streams, 'open')} pause for {check.pause:g} s"
            text += "" if node.draining else f"; `varlog node drain {node.id}` first avoids that"
        return text
    reasons = []
    if stops:
        reasons.append(f"{stops:,} of its streams would take no more appends ({check.reason})")
    if unreadable:
        reasons.append(f"{unreadable:,} could be read nowhere else")
    return f"node {node.id} cannot be stopped now: {', and '.join(reasons)}"


# ---------------------------------------------------------------- rm


def remove_node(arguments: Arguments) -> None:
    async def work(cluster: "Cluster") -> None:
        if arguments.force:
            _confirm(await cluster.check_node(arguments.node), arguments.yes)
        await cluster.remove_node(arguments.node, force=arguments.force)

    with_cluster(arguments, work)
    facts = {"node": arguments.node, "removed": True}
    Printer(arguments.output).done(facts, f"removed node {arguments.node}; its id is not given out again")


def _confirm(check: "NodeCheck", yes: bool) -> None:
    """What a removal by force gives up. Where it will be refused anyway, there is nothing to ask."""
    if yes or check.node.connected or not check.drained or not check.streams:
        return
    for stream in check.streams:
        left = f"{stream.copies_left} of {stream.copies_wanted} copies are left"
        what = "empty" if stream.empty else left
        print(f"given up: its copy of log {stream.log}, stream {stream.stream} ({what})", file=sys.stderr)
    if not somebody_there():
        raise InvalidArgument(f"nothing was removed; if node {check.node.id} is lost for good, say --yes")
    if not confirmed(f"remove node {check.node.id} for good?"):
        raise InvalidArgument("nothing was removed")
