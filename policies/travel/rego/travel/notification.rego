# METADATA
# title: Notifying a traveller
# description: >-
#   Alerts go to the traveller for whom the agent acts and to nobody else. They are sent, except while their reader sleeps,
#   and except when the same alert was already delivered or may have been. Readers without quiet hours never sleep.
# custom: {owner: travel-security, reason_codes: [POLICY_ALLOWED, X_NOT_THE_READER, SUPPRESSED_QUIET_HOURS, SUPPRESSED_DUPLICATE]}
package policies.travel.notification

import future.keywords.not

allow contains "POLICY_ALLOWED" if is_notification

deny contains "X_NOT_THE_READER" if {
	is_notification
	not is_to_its_reader
}

suppress contains {"reason_code": "SUPPRESSED_QUIET_HOURS", "until": quiet_until} if {
	is_notification
	is_quiet
}

suppress contains "SUPPRESSED_DUPLICATE" if {
	is_notification
	not is_new
}

is_notification if input.tool.name == "send_notification"

is_to_its_reader if input.args.to == input.subject.name

# Only what certainly did not arrive is sent again: an unknown outcome, or no facts at all, counts as delivered.
is_new if input.recent.same_call.count == 0

is_new if input.recent.same_call.last_status in {"failed", "temporary_error"}

# Quiet hours are [from, to] in full hours of the reader's own time; they may span midnight.
quiet_from := input.subject.attributes.quiet_hours[0]

quiet_to := input.subject.attributes.quiet_hours[1]

now_ns := time.parse_rfc3339_ns(input.now)

local_clock := time.clock([now_ns, object.get(input.subject.attributes, "timezone", "UTC")])

is_quiet if {
	quiet_from < quiet_to
	local_clock[0] >= quiet_from
	local_clock[0] < quiet_to
}

is_quiet if {
	quiet_from > quiet_to
	local_clock[0] >= quiet_from
}

is_quiet if {
	quiet_from > quiet_to
	local_clock[0] < quiet_to
}

# The end of the quiet hours, RFC 3339 in UTC. In the night in which the clocks change it is an hour off; it only tells
# when to look again.
quiet_until := sprintf("%d-%s-%sT%s:%s:00Z", [year, padded(month), padded(day), padded(hour), padded(minute)]) if {
	hours_left := ((quiet_to - local_clock[0]) + 24) % 24
	seconds_left := ((hours_left * 3600) - (local_clock[1] * 60)) - local_clock[2]
	end_ns := now_ns + (seconds_left * 1000000000)
	[year, month, day] := time.date([end_ns, "UTC"])
	[hour, minute, _] := time.clock([end_ns, "UTC"])
}

padded(number) := sprintf("%d", [number]) if number >= 10

padded(number) := sprintf("0%d", [number]) if number < 10
