"""``gateway check`` as a security team runs it: exit 3, each mistake with its place and how to mend it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import yaml


async def _check(folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "check", str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, stdout.decode()


def _change(path: Path, **fields: Any) -> None:
    found = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({name: value for name, value in (found | fields).items() if value is not ...}, sort_keys=False))


async def test_accepts_the_sample_bundle(travel_bundle: Path):
    assert await _check(travel_bundle) == (0, "")


async def test_names_every_mistake_with_its_place_and_exits_3(copied_bundle: Path):
    tools = copied_bundle / "tools"
    http = yaml.safe_load((tools / "search_hotels.yaml").read_text())["execute"]["http"]
    _change(tools / "search_hotels.yaml", execute={"http": http | {"query": {"city": "args.town"}}})
    _change(tools / "book_hotel.yaml", idempotency=...)
    _change(tools / "get_itinerary.yaml", execute=...)
    (tools / "lonely.yaml").write_text((tools / "search_hotels.yaml").read_text().replace("name: search_hotels", "name: lonely"))
    code, output = await _check(copied_bundle)
    assert code == 3
    lines = [line for line in output.splitlines() if not line.startswith("    ")]
    for file, word in (
        ("tools/search_hotels.yaml", "args.town"),
        ("tools/book_hotel.yaml", "idempotency"),
        ("tools/get_itinerary.yaml", "execute"),
        ("tools/lonely.yaml", "lonely"),
    ):
        assert [line for line in lines if file in line and word in line and "error" in line], (file, output)
    assert len(output.splitlines()) == 2 * len(lines)  # each with how to mend it


async def test_names_every_builtin_that_policies_may_not_use(copied_bundle: Path):
    calls = {
        3: 'http.send({"method": "GET", "url": "http://127.0.0.1"}).status_code == 200',
        5: "opa.runtime().env.HOME",
        7: "time.now_ns() > 0",
        9: 'io.jwt.decode("x")[2]',
        11: "rand.intn("  # a builtin that is random
        '"x", 2) == 1',
    }
    body = "package policies.suite.banned\n\n" + "\n\n".join(f'allow contains "POLICY_ALLOWED" if {call}' for call in calls.values()) + "\n"
    folder = copied_bundle / "rego" / "suite"
    folder.mkdir()
    (folder / "banned.rego").write_text(body)
    code, output = await _check(copied_bundle)
    assert code == 3
    for line, call in calls.items():
        assert f"rego/suite/banned.rego:{line}:" in output, (call, output)
