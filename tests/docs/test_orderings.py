"""Every command on the page about orderings is one that there is, and what it links to is there."""

import re
import shlex
from pathlib import Path

import pytest

from varlog.cli.main import build_parser

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "orderings.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = sorted(
    {line for block in BLOCKS for line in block.splitlines()} | set(re.findall(r"`(varlog [^`]+)`", PAGE))
)
OPTIONS = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)))
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE)))
SHORT = {"varlog log show": ["NAME"], "varlog status": []}
"""Commands that are named in a sentence, and what they need besides."""


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 8
    assert all(command.startswith("varlog ") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_copied(command: str) -> None:
    arguments = [*shlex.split(command)[1:], *SHORT.get(command, [])]
    assert build_parser(arguments).parse_args(arguments).run


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_mentioned_is_one_of_a_log(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("create", "reconfigure"):
        with pytest.raises(SystemExit):
            build_parser(["log", command]).parse_args(["log", command, "--help"])
    assert re.search(rf"{option}\b", capsys.readouterr().out)


@pytest.mark.parametrize("link", LINKS)
def test_what_is_linked_to_is_there(link: str) -> None:
    assert (DOCS / link).exists()
