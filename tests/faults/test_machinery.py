"""The tools of the fault tests themselves: proxies cut where they are told to, orders are read, progress is kept."""

import asyncio
import signal
from pathlib import Path

import asyncpg
import pytest

from tests.faults import sizes
from tests.faults.harness import database_name, socket_folder
from tests.faults.patching import replace_method, swap_sql
from tests.faults.planted import BUGS, Bug, NotPlanted, plant
from tests.faults.points import Order, Points
from tests.faults.proxy import PostgresCut, PostgresProxy, ToolCut, ToolProxy
from tests.faults.scenarios import SCENARIOS
from tests.faults.sizes import Progress, Row, read_results

ROW = Row(name="example", what="nothing", ci=10, long=100, batch=30, test="none.py")


@pytest.mark.parametrize(("cut", "is_stored"), [("answer", True), ("request", False)])
async def test_the_proxy_drops_a_commit_or_its_answer(cut: PostgresCut, is_stored: bool, database_url: str):  # noqa: FBT001 - a parameter
    statement = "INSERT INTO installation (is_dev) VALUES (false)"
    with PostgresProxy(socket_folder(database_url)) as proxy:
        connection = await asyncpg.connect(proxy.url(database_name(database_url), "gateway_app"))
        proxy.arm(cut, during=lambda text: "installation" in text)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            async with connection.transaction():
                await connection.execute(statement)
        assert proxy.cuts == 1
        await connection.close()
    direct = await asyncpg.connect(database_url)
    assert await direct.fetchval("SELECT count(*) FROM installation") == is_stored
    await direct.close()


@pytest.mark.parametrize(
    ("cut", "arrived", "answered"),
    [(ToolCut(is_before=True), b"", b""), (ToolCut(after_bytes=0), b"ask", b""), (ToolCut(after_bytes=3), b"ask", b"ans")],
)
async def test_the_proxy_cuts_a_request_or_its_answer_at_a_byte(cut: ToolCut, arrived: bytes, answered: bytes):
    seen, has_ended = bytearray(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await reader.read(100))
        writer.write(b"answer" if seen else b"")
        writer.close()
        has_ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with ToolProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
            proxy.arm(cut)
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ask")
            assert (await reader.read(), bytes(seen), proxy.cuts) == (answered, arrived, 1)
            writer.close()
        await has_ended.wait()


def test_an_order_names_a_kind_a_number_and_perhaps_a_label():
    order = Order.read("sql/after .* COMMIT/:2", signal.SIGSTOP)
    assert (order.kind, order.number, order.label is not None) == ("sql", 2, True)
    for wrong in ("sql", "sql:x", "everything:1"):
        with pytest.raises(ValueError, match="not an order"):
            Order.read(wrong, signal.SIGKILL)


def test_points_count_from_the_marker_on(tmp_path: Path):
    points = Points(None, tmp_path / "log")
    points.reach("sql", "before the marker")
    points.is_armed = True
    for label in ("before execute", "after  execute\n  something"):
        points.reach("sql", label)
    assert (tmp_path / "log").read_text() == "sql:1 before execute\nsql:2 after execute something\n"


def test_long_runs_add_up_and_stop_when_their_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAULTS", "long")
    for name in ("FAULTS_COUNT", "FAULTS_FOR"):
        monkeypatch.delenv(name, raising=False)
    first = Progress(ROW, tmp_path)
    assert first.next_batch == 30
    first.add(30, 1.0)
    first.add(50, 1.0)
    first.add(0, 1.0, violations=1)
    second = Progress(ROW, tmp_path)
    assert (second.done, second.next_batch) == (80, 20)
    monkeypatch.setenv("FAULTS_FOR", "0")
    assert Progress(ROW, tmp_path).next_batch == 0
    monkeypatch.delenv("FAULTS_FOR")
    monkeypatch.setenv("FAULTS", "1")
    Progress(ROW, tmp_path).add(10, 1.0)
    assert (Progress(ROW, tmp_path).done, Progress(ROW, tmp_path).next_batch) == (0, ROW.ci)
    assert [(result.size, result.done, result.is_good) for result in read_results(ROW.name, tmp_path)] == [
        ("long", 30, True), ("long", 50, True), ("long", 0, False), ("ci", 10, True),
    ]  # fmt: skip


def test_a_bug_that_waits_for_something_cannot_be_planted(monkeypatch: pytest.MonkeyPatch):
    waiting = Bug(name="waiting", breaks="nothing yet", caught_as=frozenset({"I1"}), scenario="plain", pending="a later issue")
    monkeypatch.setitem(BUGS, "waiting", waiting)
    with pytest.raises(NotPlanted, match="waits for: a later issue"):
        plant("waiting")


def test_a_patch_that_finds_nothing_to_change_is_an_error():
    with pytest.raises(LookupError, match="no statement says"):
        swap_sql(("a text that no statement has", ""))
    with pytest.raises(LookupError, match="no_such_method"):
        replace_method(Bug, "no_such_method", lambda old: old)


def test_every_planted_bug_has_a_scenario_and_every_row_its_file():
    assert {bug.scenario for bug in BUGS.values() if bug.pending is None} <= set(SCENARIOS)
    assert all((Path(__file__).parent / row.test).exists() for row in sizes.ROWS.values())
