package policies.travel.booking_test

import data.policies.travel.booking

limits := {"gold": 2000000000, "basic": 300000000}

booking_for(tier, micro_usd) := {
	"tool": {"name": "book_hotel", "risk": "irreversible"},
	"cost": {"usd": micro_usd},
	"subject": {"attributes": {"tier": tier}},
}

test_a_booking_needs_a_person if {
	booking.confirm == {"CONFIRMATION_REQUIRED"} with input as booking_for("gold", 200000000) with data.travel.booking_limits as limits
}

test_the_limit_itself_is_within_it if {
	count(booking.deny) == 0 with input as booking_for("gold", 2000000000) with data.travel.booking_limits as limits
	count(booking.deny) == 0 with input as booking_for("basic", 300000000) with data.travel.booking_limits as limits
}

test_above_the_limit_is_denied if {
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as booking_for("gold", 2000000001) with data.travel.booking_limits as limits
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as booking_for("basic", 300000001) with data.travel.booking_limits as limits
}

test_an_unknown_tier_is_denied if {
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as booking_for("platinum", 1) with data.travel.booking_limits as limits
}

test_missing_facts_are_denied if {
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as {"tool": {"name": "book_hotel"}, "cost": {"usd": 1}} with data.travel.booking_limits as limits
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as {"tool": {"name": "book_hotel"}, "subject": {"attributes": {"tier": "gold"}}} with data.travel.booking_limits as limits
	booking.deny == {"X_BOOKING_LIMIT_BY_TIER"} with input as booking_for("gold", 1) with data.travel.booking_limits as {}
}

test_other_tools_are_not_concerned if {
	count(booking.deny) == 0 with input as {"tool": {"name": "search_hotels"}} with data.travel.booking_limits as limits
	count(booking.confirm) == 0 with input as {"tool": {"name": "search_hotels"}} with data.travel.booking_limits as limits
}

test_the_shipped_limits_know_both_tiers if {
	count(booking.deny) == 0 with input as booking_for("gold", 300000001)
	count(booking.deny) == 0 with input as booking_for("basic", 300000000)
}
