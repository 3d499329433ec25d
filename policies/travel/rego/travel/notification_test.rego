package policies.travel.notification_test

import data.policies.travel.notification

at(now, attributes) := {
	"tool": {"name": "send_notification"},
	"subject": {"attributes": attributes},
	"recent": {"same_call": {"count": 0, "last_at": null, "last_status": null}},
	"now": now,
}

paris := {"timezone": "Europe/Paris", "quiet_hours": [22, 7]}

sent_before(status) := {
	"tool": {"name": "send_notification"},
	"subject": {"attributes": {}},
	"recent": {"same_call": {"count": 1, "last_at": "2026-03-01T09:00:00Z", "last_status": status}},
	"now": "2026-03-01T10:00:00Z",
}

test_an_alert_in_the_day_is_sent if {
	notification.allow == {"POLICY_ALLOWED"} with input as at("2026-03-01T10:00:00Z", paris)
	count(notification.suppress) == 0 with input as at("2026-03-01T10:00:00Z", paris)
}

test_an_alert_in_the_evening_waits_for_the_morning if {
	notification.suppress == {{"reason_code": "SUPPRESSED_QUIET_HOURS", "until": "2026-03-02T06:00:00Z"}} with input as at("2026-03-01T22:30:15Z", paris)
}

test_an_alert_before_dawn_waits_for_the_morning if {
	notification.suppress == {{"reason_code": "SUPPRESSED_QUIET_HOURS", "until": "2026-07-01T05:00:00Z"}} with input as at("2026-07-01T03:10:00.5Z", paris)
}

test_quiet_hours_begin_and_end_on_the_hour if {
	count(notification.suppress) == 0 with input as at("2026-03-01T20:59:59Z", paris)
	count(notification.suppress) == 1 with input as at("2026-03-01T21:00:00Z", paris)
	count(notification.suppress) == 1 with input as at("2026-03-02T05:59:59Z", paris)
	count(notification.suppress) == 0 with input as at("2026-03-02T06:00:00Z", paris)
}

test_quiet_hours_within_a_day if {
	attributes := {"timezone": "UTC", "quiet_hours": [12, 14]}
	count(notification.suppress) == 0 with input as at("2026-03-01T11:59:00Z", attributes)
	count(notification.suppress) == 1 with input as at("2026-03-01T12:00:00Z", attributes)
	count(notification.suppress) == 0 with input as at("2026-03-01T14:00:00Z", attributes)
}

test_a_reader_without_quiet_hours_never_sleeps if {
	count(notification.suppress) == 0 with input as at("2026-03-01T23:30:00Z", {"timezone": "Europe/Paris"})
}

test_the_same_alert_is_sent_once if {
	notification.suppress == {"SUPPRESSED_DUPLICATE"} with input as sent_before("ok")
	notification.suppress == {"SUPPRESSED_DUPLICATE"} with input as sent_before("outcome_unknown")
	notification.suppress == {"SUPPRESSED_DUPLICATE"} with input as sent_before("in_progress")
}

test_an_alert_that_did_not_arrive_may_be_sent_again if {
	count(notification.suppress) == 0 with input as sent_before("failed")
	count(notification.suppress) == 0 with input as sent_before("temporary_error")
}

test_without_facts_nothing_is_sent_twice if {
	notification.suppress == {"SUPPRESSED_DUPLICATE"} with input as {"tool": {"name": "send_notification"}, "subject": {"attributes": {}}, "now": "2026-03-01T10:00:00Z"}
}

to(reader) := {
	"tool": {"name": "send_notification"},
	"subject": {"name": "ada", "attributes": {}},
	"args": {"to": reader, "text": "Your train leaves at nine."},
}

test_an_alert_goes_to_its_own_reader if {
	count(notification.deny) == 0 with input as to("ada")
}

test_an_alert_to_somebody_else_is_denied if {
	notification.deny == {"X_NOT_THE_READER"} with input as to("bob")
	notification.deny == {"X_NOT_THE_READER"} with input as to("Ada")
	notification.deny == {"X_NOT_THE_READER"} with input as to("")
}

test_an_alert_is_denied_where_its_reader_is_not_known if {
	notification.deny == {"X_NOT_THE_READER"} with input as {"tool": {"name": "send_notification"}, "subject": {"name": "ada", "attributes": {}}}
	notification.deny == {"X_NOT_THE_READER"} with input as {"tool": {"name": "send_notification"}, "args": {"to": "ada"}}
	notification.deny == {"X_NOT_THE_READER"} with input as {"tool": {"name": "send_notification"}}
}

test_other_tools_are_not_concerned if {
	count(notification.deny) == 0 with input as {"tool": {"name": "book_hotel"}}
	count(notification.allow) == 0 with input as {"tool": {"name": "book_hotel"}}
	count(notification.suppress) == 0 with input as {"tool": {"name": "book_hotel"}}
}
