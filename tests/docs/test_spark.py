"""What the page on Spark shows works as shown; its list of options is the list of options."""

import re
from dataclasses import fields
from pathlib import Path

from varlog.spark.options import Options, camel

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_option_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)) == {
        camel(each.name) for each in fields(Options)
    }
