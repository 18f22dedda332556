"""What a loss of power leaves of bytes and names."""

from random import Random

from varlog.sim.disk import tree
from varlog.sim.platter import BLOCK, Content, Platter


def test_synced_bytes_always_survive() -> None:
    for seed in range(50):
        content = Content()
        content.write(0, b"a" * 2000)
        content.begin_sync()
        content.end_sync()
        content.write(2000, b"b" * 2000)
        content.lose_power(0.5, Random(seed))
        assert content.data[:2000] == b"a" * 2000


def test_unsynced_blocks_are_torn_in_any_pattern() -> None:
    """With enough crashes every subset of four blocks shows up, also a later block without an earlier one."""
    patterns = set()
    for seed in range(400):
        content = Content()
        content.extend(4 * BLOCK)
        content.begin_sync()
        content.end_sync()
        content.write(0, b"x" * 4 * BLOCK)
        content.lose_power(0.5, Random(seed))
        blocks = [bytes(content.data[at : at + BLOCK]) for at in range(0, 4 * BLOCK, BLOCK)]
        assert all(block in (bytes(BLOCK), b"x" * BLOCK) for block in blocks)
        patterns.add(tuple(block[0] for block in blocks))
    assert len(patterns) == 16


def test_a_block_rewritten_after_the_sync_began_may_show_any_of_its_three_versions() -> None:
    seen = set()
    for seed in range(100):
        content = Content()
        content.write(0, b"1" * BLOCK)
        content.begin_sync()
        content.end_sync()
        content.write(0, b"2" * BLOCK)
        content.begin_sync()
        content.write(0, b"3" * BLOCK)
        content.lose_power(0.5, Random(seed))
        seen.add(bytes(content.data[:1]))
    assert seen == {b"1", b"2", b"3"}


def test_a_file_that_grew_without_sync_may_be_short_again() -> None:
    sizes = set()
    for seed in range(50):
        content = Content()
        content.write(0, b"a" * 100)
        content.begin_sync()
        content.end_sync()
        content.write(100, b"b" * 900)
        content.lose_power(0.5, Random(seed))
        sizes.add(content.size)
    assert sizes == {100, 1000}


def test_a_failed_sync_leaves_a_cache_that_lies() -> None:
    """All bytes are seen until the power goes, a later sync `succeeds`, and still some blocks are lost."""
    lost = 0
    for seed in range(20):
        content = Content()
        content.write(0, b"x" * 8 * BLOCK)
        content.begin_sync()
        content.fail_sync(Random(seed))
        assert content.data == b"x" * 8 * BLOCK
        content.write(8 * BLOCK, b"y")
        content.begin_sync()
        content.end_sync()
        content.lose_power(1.0, Random(seed))
        lost += content.data.count(0)
    assert lost > 0


def test_a_process_that_ends_without_power_loss_loses_nothing_written() -> None:
    platter = Platter("disk", Random(1))
    content = platter.create("f")
    content.write(0, b"x" * 1000)
    content.begin_sync()
    platter.release()
    assert tree(platter) == {"f": b"x" * 1000}
    content.begin_sync()
    content.end_sync()
    platter.sync_folder("")
    platter.lose_power()
    assert tree(platter) == {"f": b"x" * 1000}


def test_names_are_durable_only_after_their_folder_is_synced() -> None:
    outcomes = set()
    for seed in range(60):
        platter = Platter("disk", Random(seed))
        platter.make_folder("a")
        platter.create("a/old")
        platter.sync_folder("")
        platter.sync_folder("a")
        platter.rename("a/old", "a/new")
        platter.lose_power()
        outcomes.add(tuple(tree(platter)))
    assert outcomes == {("a/old",), ("a/new",)}


def test_a_synced_rename_stays() -> None:
    for seed in range(20):
        platter = Platter("disk", Random(seed))
        platter.create("one")
        platter.rename("one", "two")
        platter.sync_folder("")
        platter.lose_power()
        assert list(tree(platter)) == ["two"]


def test_a_folder_whose_name_was_never_synced_takes_its_files_with_it() -> None:
    outcomes = set()
    for seed in range(60):
        platter = Platter("disk", Random(seed))
        platter.make_folder("a/b")
        platter.create("a/b/f")
        platter.sync_folder("a/b")
        platter.lose_power()
        outcomes.add(tuple(tree(platter)))
    assert outcomes == {(), ("a/b/f",)}


def test_a_removed_file_may_come_back() -> None:
    outcomes = set()
    for seed in range(60):
        platter = Platter("disk", Random(seed))
        platter.create("f")
        platter.sync_folder("")
        platter.remove("f")
        platter.lose_power()
        outcomes.add(tuple(tree(platter)))
    assert outcomes == {(), ("f",)}


def test_rot_flips_one_bit() -> None:
    platter = Platter("disk", Random(3))
    assert not platter.rot()
    platter.create("f").write(0, bytes(100))
    assert platter.rot()
    assert sum(value.bit_count() for value in tree(platter)["f"]) == 1


def test_rot_strikes_what_replicas_have_synced_and_nothing_else() -> None:
    for seed in range(40):
        platter = Platter("disk", Random(seed))
        platter.make_folder("replicas/1.1.1")
        for name in ("identity", "replicas/1.1.1/0.data", "replicas/1.1.1/free-0.data", "replicas/1.1.1/failed"):
            content = platter.create(name)
            content.write(0, b"a" * BLOCK)
            content.begin_sync()
            content.end_sync()
        platter.file("replicas/1.1.1/0.data").write(BLOCK, b"b" * BLOCK)
        before = tree(platter)
        where = platter.rot_cold()
        assert where.startswith("replicas/1.1.1/0.data at ")
        changed = {path: data for path, data in tree(platter).items() if data != before[path]}
        assert list(changed) == ["replicas/1.1.1/0.data"]
        assert changed["replicas/1.1.1/0.data"][BLOCK:] == b"b" * BLOCK, "it is not on disk yet"
    assert Platter("empty", Random(1)).rot_cold() == ""


def rotten_end() -> tuple[Platter, Content]:
    """A replica of two writes, the last of which has rotted."""
    for seed in range(40):
        platter = Platter("disk", Random(seed))
        platter.make_folder("replicas/1.1.1")
        content = platter.create("replicas/1.1.1/00.data")
        platter.sync_folder("replicas/1.1.1")
        for offset in (0, BLOCK):
            write_synced(content, offset)
        if int(platter.rot_cold().split(" at ")[1]) >= BLOCK:
            return platter, content
        assert not platter.rotten_ends, "there is a write behind it"
    raise AssertionError("none of these hits the end")


def write_synced(content: Content, offset: int) -> None:
    content.write(offset, b"a" * BLOCK)
    content.begin_sync()
    content.end_sync()


def test_a_rotten_end_is_one_until_something_is_synced_behind_it() -> None:
    platter, content = rotten_end()
    assert platter.rotten_ends == ["replicas/1.1.1/00.data"]
    content.write(2 * BLOCK, b"b" * BLOCK)
    assert platter.rotten_ends, "a loss of power takes that again"
    content.begin_sync()
    content.end_sync()
    assert not platter.rotten_ends


def test_a_rotten_end_that_was_cut_off_stays_one() -> None:
    platter, content = rotten_end()
    for offset in (BLOCK, 2 * BLOCK, 3 * BLOCK):
        write_synced(content, offset)
    assert platter.rotten_ends


def test_a_rotten_end_with_another_file_behind_it_is_none() -> None:
    platter, _ = rotten_end()
    platter.create("replicas/1.1.1/07.data")
    assert platter.rotten_ends, "its name is not durable"
    platter.sync_folder("replicas/1.1.1")
    assert not platter.rotten_ends


def test_a_rotten_end_goes_with_its_file() -> None:
    platter, _ = rotten_end()
    platter.remove_folder("replicas/1.1.1")
    platter.sync_folder("replicas")
    assert not platter.rotten_ends
