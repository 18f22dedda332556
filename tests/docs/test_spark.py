"""What the page on Spark shows works as shown; its list of options is the list of options."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from varlog.cli.main import build_parser
from varlog.spark.options import Options, camel

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


COMMANDS = [line for line in PAGE.splitlines() if line.startswith("varlog ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_copied(command: str) -> None:
    arguments = shlex.split(command)[1:]
    assert build_parser(arguments).parse_args(arguments).run


def test_every_option_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)) == {
        camel(each.name) for each in fields(Options)
    }
