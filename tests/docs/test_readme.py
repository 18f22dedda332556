"""What the README shows works as shown."""

import asyncio
import re
from pathlib import Path

import pytest

import varlog
from varlog.cli.main import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    body, started, _ = example.partition("asyncio.run(main())")
    assert started

    async def story() -> None:
        async with varlog.local_cluster(nodes=3) as cluster:
            url = f"varlog://{','.join(cluster._addresses)}"
            names: dict[str, object] = {}
            exec(body.replace("varlog://127.0.0.1:7700", url), names)
            main = names["main"]
            assert callable(main)
            await main()
            assert await cluster.log("orders").tail() == 100_003

    asyncio.run(story())
    assert capsys.readouterr().out == "1 b'one'\n2 b'a'\n3 b'b'\n"


def test_every_command_shown_exists() -> None:
    shown = re.findall(r"\./run ([a-z]+)", README)
    assert shown
    assert [name for name in shown if name not in (*FAMILIES, "test")] == []


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(page: str) -> None:
    file = ROOT / page
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (file.parent / target).exists()] == []
