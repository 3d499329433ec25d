"""Every way in which a run can end is written down for people."""

from gateway.domain.runs import RunEnd
from tests.conftest import ROOT


def test_the_page_on_runs_names_every_end():
    page = (ROOT / "docs" / "runs.md").read_text()
    assert [end for end in RunEnd if f"`{end}`" not in page] == []
    assert {end for end in RunEnd if end.is_resumable} == {RunEnd.MODEL_UNAVAILABLE, RunEnd.RUN_NOT_ALLOWED, RunEnd.RUN_BROKEN}
