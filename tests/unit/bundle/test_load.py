"""Loading: a good folder becomes a bundle, and one revision over every byte."""

import os
from pathlib import Path

from gateway.bundle import CheckedBundle, load_bundle, load_files
from gateway.bundle.folder import MAX_FILES
from gateway.domain.catalogue import MICRO, Replay, Risk
from gateway.domain.findings import Finding
from tests.fakes.small_bundle import SmallBundle


def test_a_good_folder_becomes_a_bundle_without_warnings(small: SmallBundle):
    checked = small.load()

    assert checked.warnings == ()
    assert sorted(checked.bundle.tools) == ["find_room", "take_room"]
    assert checked.bundle.tools["take_room"].replay is Replay.KEYED
    assert checked.bundle.tools["find_room"].declaration.risk is Risk.READ
    assert [budget.limit for budget in checked.bundle.budgets] == [40 * MICRO, 500 * MICRO]
    assert checked.bundle.policy.data == {"small": {"limit": 3}}
    assert checked.bundle.policy.revision == checked.bundle.revision
    assert [case.value.name for case in checked.cases] == ["rooms may be looked at", "taking one is not allowed by anything"]


def test_the_revision_changes_with_any_byte_of_any_file_that_counts(small: SmallBundle):
    revisions = {small.load().bundle.revision}
    for path in sorted(path for path in small.folder.rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes() + b"\n")
        revisions.add(small.load().bundle.revision)

    assert len(revisions) == 1 + len(small.load().files)


def test_the_revision_depends_neither_on_the_order_of_files_nor_on_their_times(small: SmallBundle):
    checked = small.load()
    for path in small.folder.rglob("*"):
        os.utime(path, (1, 1))
    backwards = load_files(dict(reversed(list(checked.files.items()))))

    assert isinstance(backwards, CheckedBundle)
    assert backwards.bundle.revision == checked.bundle.revision == small.load().bundle.revision
    assert checked.bundle.revision.startswith("sha256:")


def test_bytes_cannot_move_from_one_file_to_the_next_without_changing_the_revision(small: SmallBundle):
    before = small.load().bundle.revision
    small.write("cases/a.yaml", "[] #")
    small.write("cases/b.yaml", "[]")
    one = small.load().bundle.revision
    small.write("cases/a.yaml", "[] ")
    small.write("cases/b.yaml", "#\n[]")

    assert len({before, one, small.load().bundle.revision}) == 3


def test_hidden_files_and_a_readme_do_not_count(small: SmallBundle):
    before = small.load().bundle.revision
    small.write("README.md", "words")
    small.write(".git/config", "more")

    assert small.load().bundle.revision == before


def test_a_tool_digest_changes_with_the_tool_alone(small: SmallBundle):
    before = small.load().bundle.tools
    small.change("tools/find_room.yaml", "Find a free room.", "Find a free room!")
    after = small.load().bundle.tools

    assert after["find_room"].digest != before["find_room"].digest
    assert after["take_room"].digest == before["take_room"].digest
    assert after["take_room"].digest.startswith("sha256:")


def test_a_folder_that_does_not_exist_is_one_finding(small: SmallBundle):
    small.folder /= "nowhere"

    assert [finding.code for finding in small.findings()] == [
        "folder-missing",
        "file-missing",
        "file-missing",
        "file-missing",
        "file-missing",
    ][:1]


def test_a_bundle_without_its_bundle_file_is_refused(small: SmallBundle):
    (small.folder / "bundle.yaml").unlink()

    assert small.only() == ("file-missing", "bundle.yaml", 0)


def test_a_missing_budgets_file_is_a_warning_that_says_what_follows(small: SmallBundle):
    (small.folder / "budgets.yaml").unlink()

    assert small.load().warnings == (
        Finding(
            file="budgets.yaml",
            line=0,
            column=0,
            code="file-missing",
            message="there is no budgets.yaml: nothing is limited",
            mend="Add budgets.yaml, even where little stands in it on purpose.",
            severity="warning",
        ),
    )


def test_a_file_that_belongs_nowhere_is_found(small: SmallBundle):
    small.write("tools/notes.txt", "x")

    assert small.only() == ("file-unexpected", "tools/notes.txt", 0)


def test_a_yml_file_is_told_its_name(small: SmallBundle):
    small.write("tools/other.yml", "x")

    assert small.findings()[0].mend == "Rename it to tools/other.yaml."


def test_a_link_that_leaves_the_folder_is_refused_and_not_read(small: SmallBundle, tmp_path: Path):
    (tmp_path / "secret.yaml").write_text("name: secret")
    (small.folder / "cases" / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    assert small.only() == ("link-leaves-folder", "cases/link.yaml", 0)


def test_a_link_inside_the_folder_is_read(small: SmallBundle):
    (small.folder / "cases" / "more.yaml").symlink_to(small.folder / "budgets.yaml")
    (small.folder / "cases" / "more.yaml").unlink()
    (small.folder / ".hidden").mkdir()
    (small.folder / ".hidden" / "empty.yaml").write_text("[]")
    (small.folder / "cases" / "more.yaml").symlink_to(small.folder / ".hidden" / "empty.yaml")

    assert small.load().files["cases/more.yaml"] == b"[]"


def test_a_named_pipe_is_refused_and_not_opened(small: SmallBundle):
    os.mkfifo(small.folder / "cases" / "pipe.yaml")

    assert small.only() == ("file-unexpected", "cases/pipe.yaml", 0)


def test_a_file_over_one_mebibyte_is_refused(small: SmallBundle):
    small.write("cases/big.yaml", "#" * (1024 * 1024 + 1))

    assert small.only() == ("file-too-large", "cases/big.yaml", 0)


def test_a_link_to_its_own_folder_ends(small: SmallBundle):
    (small.folder / "rego" / "loop").symlink_to(small.folder / "rego")

    assert "folder-too-deep" in {finding.code for finding in small.findings()}


def test_two_data_files_cannot_define_the_same_path(small: SmallBundle):
    small.write("data/data.json", '{"small": {"limit": 4}}')

    assert small.only() == ("data-conflict", "data/small/data.yaml", 0)


def test_data_files_of_different_folders_become_one_document(small: SmallBundle):
    small.write("data/data.json", '{"small": {"other": 4}, "top": true}')

    assert small.load().bundle.policy.data == {"small": {"limit": 3, "other": 4}, "top": True}


def test_a_json_key_that_stands_twice_is_refused(small: SmallBundle):
    small.write("data/data.json", '{"a": 1,\n "a": 2}')

    assert small.only()[:2] == ("json-syntax", "data/data.json")


def test_a_huge_foreign_folder_is_one_finding(tmp_path: Path):
    for name in range(MAX_FILES + 50):
        (tmp_path / f"file-{name:05}.txt").touch()

    found = load_bundle(tmp_path)

    assert isinstance(found, list)
    assert [(finding.code, finding.file) for finding in found] == [("folder-too-large", f"file-{MAX_FILES:05}.txt")]


def test_more_bytes_than_a_bundle_may_have_are_one_finding(small: SmallBundle):
    for number in range(17):
        small.write(f"data/d{number:02}/data.yaml", "#" * (1024 * 1024 - 1))

    assert [finding.code for finding in small.findings()] == ["folder-too-large"]


def test_a_huge_tree_of_folders_is_one_finding(tmp_path: Path):
    for name in range(MAX_FILES + 1):
        (tmp_path / f"folder-{name:05}").mkdir()

    found = load_bundle(tmp_path)

    assert isinstance(found, list)
    assert [finding.code for finding in found] == ["folder-too-large"]
