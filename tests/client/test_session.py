"""Sessions against a model of a stream, over a network that loses, delays and reorders single frames."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from varlog.client.session import Session, Transmission


class Send:
    """A batch with what its caller was told."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.acked = False
        self.refused = False
        self.unknown_for_good = False


class Stream:
    """What a primary does with a producer's batches."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.sealed = False
        self.full = False
        self._taken: dict[bytes, list[int]] = {}

    def append(self, producer: bytes, sequence: int, name: int) -> tuple[str, int]:
        taken = self._taken.setdefault(producer, [])
        if sequence < len(taken):
            assert taken[sequence] == name, "two batches under one identity"
            return "ack", 0
        if self.sealed:
            return "sealed", 0
        if sequence > len(taken):
            return "gap", len(taken)
        if self.full:
            return "full", 0
        taken.append(name)
        self.log.append(name)
        return "ack", 0

    def forget(self) -> None:
        self._taken.clear()


class World:
    """A writer as the client's is, with every frame on its own way."""

    def __init__(self, random: Random, *, forgets: bool) -> None:
        self.random = random
        self.forgets = forgets
        self.stream = Stream()
        self.sends: list[Send] = []
        self.sessions: list[Session[Send]] = []
        self.requests: list[tuple[Session[Send], Transmission[Send], bytes, int, int]] = []
        self.answers: list[tuple[Session[Send], Transmission[Send], str, int]] = []
        self._session()

    def _session(self) -> Session[Send]:
        session = Session[Send](self.random.randbytes(16))
        self.sessions.append(session)
        return session

    def add(self, send: Send) -> None:
        session = self.sessions[-1]
        if session.over:
            session = self._session()
        session.add(send)

    def pump(self, limit: int) -> None:
        for session in self.sessions:
            while limit and (send := session.to_send()) is not None:
                transmission = session.sent(send)
                self.requests.append((session, transmission, session.producer, send.sequence, send.batch.name))
                limit -= 1

    def deliver(self, order: int) -> None:
        if self.requests:
            session, transmission, producer, sequence, name = self.requests.pop(order % len(self.requests))
            self.answers.append((session, transmission, *self.stream.append(producer, sequence, name)))

    def lose(self, order: int) -> None:
        """The answer never comes; the request may still arrive later, or never."""
        if self.requests:
            session, transmission, producer, sequence, name = self.requests.pop(order % len(self.requests))
            session.lost(transmission)
            self._settle(session)
            if self.random.random() < 0.5:
                self.late.append((producer, sequence, name))

    late: list[tuple[bytes, int, int]]

    def answer(self, order: int) -> None:
        if not self.answers:
            return
        session, transmission, kind, value = self.answers.pop(order % len(self.answers))
        send = transmission.flight.batch
        if kind == "ack":
            if session.acked(transmission):
                send.acked = True
        elif kind == "gap":
            session.gap(transmission, value)
        else:
            behind = session.refused(transmission, final=kind == "sealed")
            if behind is not None:
                send.refused = True
                for each in behind:
                    self.add(each)
        self._settle(session)

    def _settle(self, session: Session[Send]) -> None:
        ended = session.abandoned()
        if ended is not None:
            certain, doubtful = ended
            for each in certain:
                self.add(each)
            for each in doubtful:
                each.unknown_for_good = True

    def step(self) -> None:
        choice, order = self.random.random(), self.random.randrange(1000)
        if choice < 0.2:
            send = Send(len(self.sends))
            self.sends.append(send)
            self.add(send)
        elif choice < 0.45:
            self.pump(self.random.randrange(1, 4))
        elif choice < 0.65:
            self.deliver(order if self.random.random() < 0.4 else 0)
        elif choice < 0.85:
            self.answer(order if self.random.random() < 0.4 else 0)
        elif choice < 0.92:
            self.lose(order)
        elif choice < 0.95 and self.late:
            producer, sequence, name = self.late.pop(order % len(self.late))
            self.stream.append(producer, sequence, name)
        elif choice < 0.97:
            self.stream.full = not self.stream.full
        elif choice < 0.99 and self.forgets and not self._on_the_way():
            self.stream.forget()

    def _on_the_way(self) -> bool:
        """Only who has been silent for long is forgotten: longer than any frame of his is on its way."""
        open_ones = [each for session in self.sessions for each in session.unresolved.values()]
        return bool(self.late or self.requests) or any(each.open or each.unknown for each in open_ones)

    def calm(self) -> None:
        """Faults end: everything in the air arrives, in order."""
        self.stream.full = False
        for producer, sequence, name in self.late:
            self.stream.append(producer, sequence, name)
        self.late.clear()
        for _ in range(100 * (len(self.sends) + 10)):
            if not (self.requests or self.answers or any(each.to_send() for each in self.sessions)):
                return
            self.pump(1)
            self.deliver(0)
            self.answer(0)
        raise AssertionError("the sessions do not come to rest")


def check(world: World) -> None:
    counts = {name: world.stream.log.count(name) for name in world.stream.log}
    assert all(count == 1 for count in counts.values()), "I5: a batch is there twice"
    for send in world.sends:
        assert send.acked + send.refused + send.unknown_for_good == 1, "every send ends in one way"
        assert not (send.acked and send.name not in counts), "I1: acked and not there"
        assert not (send.refused and send.name in counts), "I6: refused and there"


@settings(max_examples=400, deadline=None)
@given(st.integers(), st.booleans(), st.booleans())
def test_every_send_ends_in_a_true_way(seed: int, forgets: bool, seals: bool) -> None:
    random = Random(seed)
    world = World(random, forgets=forgets)
    world.late = []
    for step in range(300):
        world.step()
        if seals and step == 250:
            world.stream.sealed = True
    world.calm()
    check(world)


def test_a_gap_sends_again_from_where_the_stream_stands_and_once_only() -> None:
    session: Session[str] = Session(bytes(16))
    flights = [session.add(name) for name in "abcd"]
    first = [session.sent(each) for each in flights]
    assert session.to_send() is None
    for transmission in first[1:]:
        session.gap(transmission, 0)
    again = []
    while (each := session.to_send()) is not None:
        session.sent(each)
        again.append(each.batch)
    assert again == ["a", "b", "c", "d"]


def test_a_lost_one_alone_is_sent_again_alone() -> None:
    session: Session[str] = Session(bytes(16))
    first = [session.sent(session.add(name)) for name in "abc"]
    session.lost(first[1])
    flight = session.to_send()
    assert flight is first[1].flight
    session.sent(flight)
    assert session.to_send() is None


def test_a_late_gap_answer_is_not_taken_for_a_lost_memory() -> None:
    session: Session[str] = Session(bytes(16))
    one, two = session.sent(session.add("a")), session.sent(session.add("b"))
    assert session.acked(one)
    session.gap(two, 0)  # it overtook the first, whose answer overtook this one
    assert not session.forgotten
    assert session.to_send() is two.flight


def test_a_forgotten_session_tells_certain_from_doubtful() -> None:
    session: Session[str] = Session(bytes(16), 7)
    one, two = session.sent(session.add("a")), session.sent(session.add("b"))
    session.lost(one)
    again = session.sent(one.flight)
    session.gap(two, 0)
    assert session.forgotten
    assert session.abandoned() is None
    session.gap(again, 0)
    assert session.abandoned() == (["b"], ["a"])


def test_a_refusal_is_final_only_when_nothing_else_is_on_its_way() -> None:
    session: Session[str] = Session(bytes(16))
    first = session.add("a")
    session.add("b")
    session.lost(session.sent(first))
    assert session.refused(session.sent(first), final=False) is None
    assert session.to_send() is first
    assert session.refused(session.sent(first), final=True) == ["b"]
    assert session.over
    assert not session.unresolved


def test_answers_to_what_has_gone_on_elsewhere_change_nothing() -> None:
    session: Session[str] = Session(bytes(16))
    one, two = session.sent(session.add("a")), session.sent(session.add("b"))
    assert session.refused(one, final=True) == ["b"]
    other: Session[str] = Session(b"x" * 16)
    moved = other.add("b")
    session.gap(two, 0)
    assert moved.open == 0
    assert other.to_send() is moved
