"""`varlog log`: create, list, show, reconfigure, seal, trim and remove logs."""

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING

from varlog.base.errors import InvalidArgument, NotFound
from varlog.cli.frame import (
    Arguments,
    Commands,
    Parser,
    add_command,
    add_family,
    byte_count,
    confirmed,
    node_ids,
    positive,
    somebody_there,
    split_addresses,
    with_cluster,
)
from varlog.cli.output import Column, Printer, moment, number, render_table, size, to_json

if TYPE_CHECKING:
    from varlog.client import Cluster, ClusterStatus, LogDescription

RETAINED = ("retain_bytes", "retain_seconds", "retain_archived")
ROLLED = ("roll_bytes", "roll_seconds")


def register(commands: Commands, summary: str) -> None:
    family = add_family(commands, "log", summary)
    create = add_command(family, "create", create_log, "create a log")
    create.add_argument("name")
    create.add_argument("--ordering", help="who numbers the entries: cut (the default), leader or sequencer")
    create.add_argument("--replicas", type=positive, default=3, help="copies of every entry (default: 3)")
    create.add_argument("--streams", type=positive, default=1, help="streams that take appends at once (default: 1)")
    create.add_argument(
        "--ack",
        type=positive,
        help="durable copies that an acknowledgement needs (default: most of them); in a chain and under `sequencer`, "
        "where all copies that there are acknowledge, the fewest to go on with",
    )
    create.add_argument("--unit", type=positive, help="positions that go to one stream in turn, under `sequencer`")
    create.add_argument(
        "--journal",
        action="store_true",
        help="led by one client at a time, from its process, which implies --ordering leader",
    )
    create.add_argument("--replication", default="", help="broadcast (the default) or chain, under `leader`")
    create.add_argument(
        "--pin", default="", help="capabilities that no change may take away, like many_writers,atomic_batch"
    )
    add_limits(create, default=0)
    add_command(family, "ls", list_logs, "list all logs")
    show = add_command(family, "show", show_log, "everything about one log")
    show.add_argument("name")
    reconfigure = add_command(family, "reconfigure", reconfigure_log, "change what a log is made of, while it is used")
    reconfigure.add_argument("name")
    reconfigure.add_argument("--ordering", help="who numbers the entries: cut, leader or sequencer")
    reconfigure.add_argument("--replicas", type=positive, help="copies of every entry")
    reconfigure.add_argument("--streams", type=positive, help="streams that take appends at once")
    reconfigure.add_argument("--ack", type=positive, help="durable copies that an acknowledgement needs, at least")
    reconfigure.add_argument("--unit", type=positive, help="positions that go to one stream in turn")
    reconfigure.add_argument("--members", type=node_ids, default=[], help="nodes of the next segment, like 1,2,3")
    reconfigure.add_argument("--roll", action="store_true", help="begin a new segment, even if nothing else changes")
    reconfigure.add_argument("--replication", help="broadcast or chain, under `leader`")
    reconfigure.add_argument(
        "--journal",
        action=BooleanOptionalAction,
        default=None,
        help="led by one client at a time, which implies --ordering leader; or by a node again",
    )
    reconfigure.add_argument("--pin", default="", help="capabilities that no change may take away from now on")
    reconfigure.add_argument("--unpin", default="", help="those that may go again")
    add_limits(reconfigure, default=None)
    seal = add_command(family, "seal", seal_log, "close a log for good; it stays readable")
    seal.add_argument("name")
    trim = add_command(family, "trim", trim_log, "delete everything at or below a position")
    trim.add_argument("name")
    trim.add_argument("upto", type=positive, help="the last position that goes")
    remove = add_command(family, "rm", remove_log, "delete a log with all its entries")
    remove.add_argument("name")
    remove.add_argument("--yes", action="store_true", help="do not ask")


def add_limits(parser: Parser, default: int | None) -> None:
    """When a segment is followed by the next, and what is kept."""
    parser.add_argument("--roll-bytes", type=byte_count, default=default, help="a new segment at this size, like 1G")
    parser.add_argument("--roll-seconds", type=float, default=default, help="a new segment at this age")
    parser.add_argument("--retain-bytes", type=byte_count, default=default, help="keep the newest so much, like 1T")
    parser.add_argument("--retain-seconds", type=float, default=default, help="keep what is not older")
    parser.add_argument(
        "--retain-archived",
        action=BooleanOptionalAction,
        default=None if default is None else False,
        help="keep what is not archived yet, too",
    )


# ---------------------------------------------------------------- in words


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def made_of(ordering: str, replicas: int, streams: int, journal: bool, replication: str) -> str:
    """What a log is, in a few words."""
    special = ", a journal" * journal + ", in a chain" * (replication == "chain")
    return f"{ordering}, {counted(replicas, 'replica')}, {counted(streams, 'stream')}{special}"


# ---------------------------------------------------------------- changing


def create_log(arguments: Arguments) -> None:
    ordering = arguments.ordering or ("leader" if arguments.journal else "cut")

    async def work(cluster: "Cluster") -> None:
        await cluster.create_log(
            arguments.name,
            ordering=ordering,
            replicas=arguments.replicas,
            streams=arguments.streams,
            ack=arguments.ack,
            unit=arguments.unit,
            roll_bytes=arguments.roll_bytes,
            roll_seconds=arguments.roll_seconds,
            retain_bytes=arguments.retain_bytes,
            retain_seconds=arguments.retain_seconds,
            retain_archived=arguments.retain_archived,
            journal=arguments.journal,
            pin=split_addresses([arguments.pin]),
            replication=arguments.replication,
        )

    with_cluster(arguments, work)
    facts = {key: getattr(arguments, key) for key in ("name", "replicas", "streams", "journal")} | {
        "ordering": ordering
    }
    made = made_of(ordering, arguments.replicas, arguments.streams, arguments.journal, arguments.replication)
    Printer(arguments.output).done(facts, f"created {arguments.name}: {made}")


def reconfigure_log(arguments: Arguments) -> None:
    names = ("ordering", "replicas", "streams", "ack", "unit", "replication", "journal")
    limits = ("roll_bytes", "roll_seconds", "roll", *RETAINED)
    wanted = {name: getattr(arguments, name) for name in (*names, *limits)}
    pin, unpin = split_addresses([arguments.pin]), split_addresses([arguments.unpin])

    async def work(cluster: "Cluster") -> "LogDescription":
        return await cluster.log(arguments.name).reconfigure(members=arguments.members, pin=pin, unpin=unpin, **wanted)

    log = with_cluster(arguments, work)
    last = log.chain[-1]
    facts = {"name": log.name, "segment": last.epoch, "base": last.base}
    facts |= {name: getattr(log, name) for name in ("ordering", "replicas", "streams", "journal")}
    made = made_of(log.ordering, log.replicas, log.streams, log.journal, last.replication)
    where = f"in segment {last.epoch} from {last.base:,} on"
    Printer(arguments.output).done(facts, f"{log.name} is now {made}, {where}")


def seal_log(arguments: Arguments) -> None:
    async def work(cluster: "Cluster") -> int:
        return await cluster.log(arguments.name).seal() - 1

    tail = with_cluster(arguments, work)
    facts = {"name": arguments.name, "tail": tail}
    Printer(arguments.output).done(facts, f"sealed {arguments.name} at {tail:,}")


def trim_log(arguments: Arguments) -> None:
    async def work(cluster: "Cluster") -> None:
        await cluster.log(arguments.name).trim(arguments.upto)

    with_cluster(arguments, work)
    facts = {"name": arguments.name, "trimmed": arguments.upto}
    Printer(arguments.output).done(facts, f"trimmed {arguments.name} up to {arguments.upto:,}")


def remove_log(arguments: Arguments) -> None:
    if not arguments.yes:
        if not somebody_there():
            raise InvalidArgument(f"nothing was deleted; if {arguments.name} is to go with all its entries, say --yes")
        if not confirmed(f"delete the log {arguments.name} with all its entries?"):
            raise InvalidArgument("nothing was deleted")

    async def work(cluster: "Cluster") -> None:
        await cluster.remove_log(arguments.name)

    with_cluster(arguments, work)
    Printer(arguments.output).done({"name": arguments.name, "removed": True}, f"removed {arguments.name}")


# ---------------------------------------------------------------- looking


def list_logs(arguments: Arguments) -> None:
    from varlog.cli.describe import LOG_COLUMNS, log_row

    rows = [log_row(log) for log in _status(arguments).logs]
    Printer(arguments.output).table(LOG_COLUMNS, rows, empty="no logs yet; `varlog log create NAME` makes one")


def show_log(arguments: Arguments) -> None:
    from varlog.cli import describe

    cluster = _status(arguments)
    status = next((status for status in cluster.logs if status.log.name == arguments.name), None)
    if status is None:
        raise NotFound(f"there is no log named {arguments.name!r}; `varlog log ls` lists them")
    many, copies = counted(status.log.streams, "stream"), counted(status.log.replicas, "replica")
    wanted = f"{many}, {copies}{' each' * (status.log.streams > 1)}"
    row = {**describe.log_row(status), "wanted": wanted, "missing": describe.missing_from(status, cluster)}
    row["copies"], row["ack"] = describe.copies_of(status.log), describe.copies_now(status.log)[1]
    row["survives"], row["losses"] = describe.losses_survived(status.log), describe.losses_of(status.log)._asdict()
    row |= {name: getattr(status.log, name) for name in RETAINED}
    row |= {name: getattr(status.log, name) for name in ROLLED}
    row["keeps"], row["rolls"] = describe.kept(status.log), describe.rolled(status.log)
    row["capabilities"], row["pinned"] = describe.capabilities_of(status.log), list(status.log.pinned)
    row["leader"], row["sequencer"] = describe.leader_of(status.log), describe.sequencer_of(status.log)
    segments = [describe.segment_row(segment) for segment in status.log.chain]
    streams = list(describe.stream_rows(status, cluster))
    replicas = list(describe.replica_rows(status))
    printer = Printer(arguments.output)
    if printer.json:
        print(to_json({**row, "segments": segments, "stream_states": streams, "replica_states": replicas}))
        return
    printer.record(row, _facts())
    for title, columns, rows in (
        ("Chain", describe.SEGMENT_COLUMNS, segments),
        ("Streams", describe.STREAM_COLUMNS, streams),
        ("Replicas", describe.REPLICA_COLUMNS, replicas),
    ):
        print("\n" + "\n".join([f"{title}:", *render_table(columns, rows, printer.stream)]))


def _facts() -> list[Column]:
    from varlog.cli.describe import state_style, trouble_style

    return [
        Column("name"),
        Column("id"),
        Column("state", style=state_style),
        Column("ordering"),
        Column("wanted"),
        Column("copies"),
        Column("survives"),
        Column("leader"),
        Column("sequencer"),
        Column("capabilities"),
        Column("pinned"),
        Column("missing", style=lambda _: "yellow"),
        Column("tail", show=number),
        Column("trimmed", show=number),
        Column("archived", show=number),
        Column("archive"),
        Column("stored_bytes", "stored", show=size),
        Column("rolls"),
        Column("keeps"),
        Column("kept_cuts", show=number),
        Column("created", show=moment),
        Column("troubles", style=trouble_style),
    ]


def _status(arguments: Arguments) -> "ClusterStatus":
    return with_cluster(arguments, lambda cluster: cluster.status())
