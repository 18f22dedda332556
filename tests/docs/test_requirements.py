"""Every requirement of the designs has a row that names its proof, and what the rows name is there."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from varlog.sim.bugs import BUGS
from varlog.sim.checkers import CHECKERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE = DOCS.parent / "src"
PAGE = (DOCS / "requirements.md").read_text(encoding="utf-8")
WANTED = [
    f"{letter}{number}"
    for letter, last in (("W", 17), ("S", 9), ("M", 7), ("C", 5), ("J", 11), ("P", 6))
    for number in range(1, last + 1)
]
MISSING = "not there yet"
PLANTED = "../tests/sim/test_teeth.py"


class Link(NamedTuple):
    text: str
    target: str


class Row(NamedTuple):
    """One line of a table, cell by cell."""

    id: str
    wanted: str
    where: str
    proof: str

    @property
    def evidence(self) -> list[Link]:
        return links_in(self.proof)


def links_in(text: str) -> list[Link]:
    return [Link(name.strip("`"), target) for name, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", text)]


def rows_in(page: str) -> list[Row]:
    lines = [line for line in page.splitlines() if re.match(r"\| *[A-Z]\d", line)]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


def is_there(link: Link) -> bool:
    """A test in the file that is linked to, a planted bug, or a checker that judges by that name."""
    file = (DOCS / link.target).resolve()
    if link.text.startswith("test_"):
        return re.search(rf"^(async )?def {link.text}\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None
    if link.target == PLANTED:
        return link.text in BUGS
    checker = CHECKERS.get(link.text)
    return checker is not None and file == SOURCE / f"{checker.__module__.replace('.', '/')}.py"


ROWS = rows_in(PAGE)


def test_every_requirement_has_one_row() -> None:
    assert [row.id for row in ROWS] == WANTED


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_row_says_what_is_wanted_and_names_its_proof(row: Row) -> None:
    assert row.wanted
    assert links_in(row.where) or MISSING in row.where
    assert row.evidence or row.proof == MISSING
    assert [link for link in row.evidence if not is_there(link)] == []


@pytest.mark.parametrize("target", sorted({link.target for link in links_in(PAGE)}))
def test_what_is_linked_to_is_there(target: str) -> None:
    assert (DOCS / target).exists()
