"""The list of codes: complete, stable in form, and the page that is written from it."""

import re
from pathlib import Path

from gateway.bundle.finding_codes import FINDING_CODES, write_findings_page

ROOT = Path(__file__).parents[3]
CODES = {code for codes in FINDING_CODES.values() for code in codes}


def test_the_page_is_what_the_list_writes():
    assert (ROOT / "docs" / "findings.md").read_text() == write_findings_page()


def test_no_code_is_listed_twice():
    assert sum(map(len, FINDING_CODES.values())) == len(CODES)


def test_every_code_that_the_sources_name_is_listed_and_every_listed_one_is_used():
    sources = sorted(path for package in ("bundle", "policy") for path in (ROOT / "gateway" / package).rglob("*.py"))
    text = "".join(path.read_text() for path in sources if path.name != "finding_codes.py")
    first_words = {code.partition("-")[0] for code in CODES}
    named = {name for name in re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', text) if name.partition("-")[0] in first_words}

    assert named - CODES - {"content-encoding", "content-length", "content-type"} == set()
    assert CODES - named == set()
