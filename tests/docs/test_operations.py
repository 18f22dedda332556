"""Every command on the page for operators is one that there is, with flags that it has."""

import re
import shlex
from pathlib import Path

import pytest

from varlog.cli.main import build_parser

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = sorted({line for block in BLOCKS for line in block.splitlines() if line.startswith("varlog ")})
MENTIONED = sorted(set(re.findall(r"`varlog ([a-z ]+?)[` ]", PAGE)))


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 10
    assert all(line.startswith(("varlog ", "export ")) for block in BLOCKS for line in block.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_copied(command: str) -> None:
    arguments = shlex.split(command)[1:]
    assert build_parser(arguments).parse_args(arguments).run


@pytest.mark.parametrize("family", MENTIONED)
def test_what_is_mentioned_exists(family: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        build_parser(family.split()).parse_args([*family.split(), "--help"])
    assert exit_.value.code == 0
