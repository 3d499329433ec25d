"""Bugs that are planted in a launched gateway, one at a time: a suite that does not catch them proves nothing.

A bug is a patch from outside, applied in the gateway's own process before its command line runs (PLANT=<name>, launch.py).
It names the invariants that must break and the scenario (scenarios.py) that breaks them within ten seconds.
A pending bug waits for a part of the gateway that does not exist yet: its test is skipped and says so, to plant it is an error.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults import patches


class NotPlanted(Exception):
    """The patch found nothing to patch, or is not written yet."""


@dataclass(frozen=True, kw_only=True)
class Bug:
    name: str
    breaks: str
    caught_as: frozenset[str]
    scenario: str
    patch: Callable[[], None] | None = None
    pending: str | None = None


def _bug(name: str, breaks: str, caught_as: str, scenario: str, patch: Callable[[], None] | None = None, pending: str | None = None) -> Bug:
    return Bug(name=name, breaks=breaks, caught_as=frozenset(caught_as.split()), scenario=scenario, patch=patch, pending=pending)


BUGS: dict[str, Bug] = {
    bug.name: bug
    for bug in (
        _bug("acknowledges_before_commit", "the tool is called before the admission is committed", "I3", "plain", patches.lose_admissions),
        _bug("sends_after_a_lost_commit", "an admission whose COMMIT failed is taken as committed", "I3 I12", "lost_commit", patches.ignore_lost_commits),
        _bug("claims_do_not_hold", "a known key executes again", "I4 I5 I11", "plain", patches.let_claims_go),
        _bug("key_without_agent", "keys of one agent answer another", "L1", "plain", patches.drop_scope_of_claims),
        _bug("other_input_is_answered", "the fingerprint is not compared", "I4", "plain", patches.ignore_fingerprints),
        _bug("expired_key_executes", "a key past its time is taken as new", "I10", "expired_key", patches.let_expired_keys_run),
        _bug("lost_answer_is_no_effect", "an answer that was lost counts as nothing sent", "T1 I5", "lost_answer", patches.take_lost_as_not_sent),
        _bug("told_before_booked", "the agent hears an outcome that is not booked", "I8 L1", "single", patches.answer_without_settling),
        _bug("refusals_unrecorded", "denials are answered and not written", "L1", "plain", patches.skip_refusals),
        _bug("budget_limit_ignored", "reserving does not look at the limit", "B1 B3", "budget", patches.ignore_limits),
        _bug("reservation_leaks", "settling does not give the reservation back", "B2", "budget", patches.leak_reservations),
        _bug("hold_never_ends", "a settled hold stays held", "B5", "budget", patches.keep_holds),
        _bug("log_skips_positions", "positions have gaps", "L3", "plain", patches.skip_positions),
        _bug("leaf_without_prefix", "the leaf is not the RFC 6962 hash", "L4", "plain", patches.hash_leaves_plainly),
        _bug("another_key_each_attempt", "the downstream key differs between attempts", "I1 I2", "crash_keyed", patches.randomize_downstream_keys),
        _bug("write_is_retried", "a write whose answer was lost is sent again", "I1 I2", "lost_answer", patches.retry_writes),
        _bug("fence_dropped", "a writer whose lease is over still writes", "I6", "zombie_late_answer", patches.drop_fences),
        _bug("deadline_not_checked", "a thawed sender sends after its lease", "I5 I11 T1", "zombie_before_send", patches.ignore_deadlines),
        _bug("expired_lease_is_no_effect", "the reaper takes an expired lease as not happened", "I5 T1", "crash_never", patches.forget_what_expired),
        _bug("lease_expiry_releases", "an expired lease gives its budget back", "B5", "crash_never", patches.release_on_expiry),
        _bug("clock_of_its_own", "leases follow a clock that is ten minutes behind", "D1", "crash_alone", patches.set_clock_back),
        _bug("negative_probe_too_early", "a negative probe counts before settle", "I11 T1", "late_probe", patches.believe_early_probes),
        _bug("never_is_resent", "the resolver resends class never", "I1 D2", "crash_never", patches.resend_never),
        _bug("resolution_without_record", "a doubt ends without a resolution record", "I7", "crash_keyed", patches.resolve_without_record),
        _bug("versions_not_compared", "facts are not compared at admission", "P1", "policy", patches.ignore_versions),
        _bug("unsorted_locks", "batches take their locks in no order", "O1 O2", "crossed_budgets", patches.shuffle_locks),
        _bug("claims_locked_late", "a settlement locks its claims after its budgets", "O2", "settlement_meets_duplicate", patches.lock_claims_late),
        _bug("batch_fails_neighbours", "one bad write fails its batch", "O1", "bad_neighbour", patches.fail_neighbours),
        _bug("cancelled_with_client", "an execution ends with the client that asked", "I9", "client_leaves", patches.let_clients_cancel),
        _bug("cut_off_is_no_effect", "an execution that a stop cuts off counts as nothing sent", "T1 I5", "drained", patches.take_cut_off_as_not_sent),
        _bug("replaced_revision_admits", "an admission under a replaced revision commits", "R1", "replaced_revision", patches.ignore_revisions),
        _bug("grant_used_twice", "whether an agreement is used already is not looked at in the admission", "A1", "agreed_once", patches.forget_uses_of_grants),
        _bug("grant_of_another_call", "an agreement lets any call pass", "A2", "agreed_other", patches.ignore_what_was_agreed_to),
        _bug("grant_not_given_back", "a call without effect keeps its agreement", "A3", "agreed_without_effect", patches.keep_grants),
        _bug("grant_of_a_doubt_is_free", "a call in doubt gives its agreement back", "A1 A3", "agreed_in_doubt", patches.give_grants_of_doubts_back),
        _bug("silent_client_is_no_effect", "the reaper takes a client's silence as not happened", "T1", "client_is_silent", patches.forget_silent_clients),
    )
}  # fmt: skip


def plant(name: str) -> None:
    """Switch one bug on in this process. Raises NotPlanted where it cannot be."""
    bug = BUGS[name]
    if bug.patch is None or bug.pending is not None:
        raise NotPlanted(f"{name} waits for: {bug.pending}")
    try:
        bug.patch()
    except LookupError as error:
        raise NotPlanted(f"{name} found nothing to patch: {error}") from error
