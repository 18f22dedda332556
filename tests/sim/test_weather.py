"""Weather is drawn from the seed alone, differs from seed to seed, and can be read."""

from random import Random

import pytest

from varlog.sim.climate import draw
from varlog.sim.weather import Latency, between


def test_the_same_seed_has_the_same_weather() -> None:
    assert draw(7) == draw(7)
    assert draw(7).host("node1") == draw(7).host("node1")
    assert draw(7) != draw(8)


def test_every_host_and_disk_draws_its_own() -> None:
    weather = draw(7)
    disks = [weather.disk(f"node{number}.disk0") for number in range(20)]
    assert len({disk.sync.median for disk in disks}) == 20
    low, high = weather.disk_sync
    assert all(low <= disk.sync.median <= high for disk in disks)


def test_all_climates_occur() -> None:
    weathers = [draw(seed) for seed in range(300)]
    assert {weather.network.in_order for weather in weathers} == {True, False}
    assert {weather.shape.nodes for weather in weathers} == {1, 2, 3, 4, 5, 6}
    common = ("node_crashes", "repository_crashes", "pauses", "partitions", "breaks", "full_disks")
    for kind in (*common, "failing_syncs", "failing_commits", "end_snipes"):
        present = sum(getattr(weather.faults, kind) > 0 for weather in weathers)
        assert 0 < present < 300, kind
    assert any(weather.network.loss > 0 for weather in weathers)
    assert 0 < sum(weather.shape.drains for weather in weathers) < 150
    assert all(not weather.network.in_order or weather.network.loss == 0 for weather in weathers)
    assert all(weather.shape.replicas <= weather.shape.nodes for weather in weathers)


def test_a_leader_has_up_to_five_copies_and_any_number_of_them_acknowledge() -> None:
    shapes = [draw(seed).shape for seed in range(600)]
    led = [shape for shape in shapes if shape.ordering == "leader"]
    quorums = {(shape.replicas, shape.ack, shape.replication) for shape in led if shape.ack}
    every = {(copies, ack) for copies in range(2, 6) for ack in range(2, copies + 1)}
    assert {(copies, ack) for copies, ack, chain in quorums if not chain} == every
    assert {copies > ack for copies, ack, chain in quorums if chain} == {True, False}
    assert {shape.journal for shape in led if shape.ack} == {True, False}
    assert {shape.replicas for shape in shapes if shape.replication} == {2, 3, 4, 5}
    assert all(shape.nodes > shape.replicas for shape in shapes if shape.rebuilds)


def test_with_how_few_copies_a_log_goes_on_is_drawn_where_nobody_leads() -> None:
    shapes = [shape for seed in range(600) if (shape := draw(seed).shape).ordering != "leader"]
    assert {shape.ordering for shape in shapes if shape.ack} == {"cut", "sequencer"}
    drawn = {(shape.replicas, shape.ack) for shape in shapes}
    assert drawn == {(1, 0), (1, 1), (2, 0), (2, 2), (3, 0), (3, 2), (3, 3)}


def test_policies_and_conditions_are_drawn_where_logs_are_changed() -> None:
    shapes = [draw(seed).shape for seed in range(300)]
    for drawn in ("policies", "conditions"):
        assert all(shape.reshapes for shape in shapes if getattr(shape, drawn))
        assert {shape.ordering for shape in shapes if getattr(shape, drawn)} == {"cut", "leader", "sequencer"}
        assert any(shape.reshapes and not getattr(shape, drawn) for shape in shapes)
    assert not any(shape.conditions and shape.journal for shape in shapes)


def test_it_can_be_read() -> None:
    for seed in range(20):
        text = draw(seed).describe()
        assert [line.split()[0] for line in text.splitlines()] == [
            "shape",
            "network",
            "faults",
            "commit",
            "clocks",
            "disks",
        ]


def test_latencies_stay_around_their_median() -> None:
    random = Random(1)
    plain = [Latency(0.01, 0.5).draw(random) for _ in range(1000)]
    assert 0.003 < min(plain) < 0.006
    assert 0.015 < max(plain) < 0.03
    assert Latency(0.01, 0.0).draw(random) == pytest.approx(0.01)
    stalls = [Latency(0.01, 0.0, 0.1, 5.0).draw(random) for _ in range(1000)]
    assert 50 < sum(value > 1.0 for value in stalls) < 200


def test_between_covers_orders_of_magnitude() -> None:
    random = Random(1)
    drawn = [between(random, 1e-4, 1.0) for _ in range(1000)]
    assert 150 < sum(value < 1e-3 for value in drawn) < 350
