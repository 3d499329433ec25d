# METADATA
# title: Booking a hotel
# description: >-
#   A booking needs a recent confirmation by a person, and never exceeds what the traveller's tier may spend on one.
#   Amounts are integers in micro-USD. Without a known price or tier there is no booking.
# custom: {owner: travel-security, reason_codes: [CONFIRMATION_REQUIRED, X_BOOKING_LIMIT_BY_TIER]}
package policies.travel.booking

import future.keywords.not

import data.travel.booking_limits

confirm contains "CONFIRMATION_REQUIRED" if is_booking

deny contains "X_BOOKING_LIMIT_BY_TIER" if {
	is_booking
	not is_within_limit
}

is_booking if input.tool.name == "book_hotel"

is_within_limit if input.cost.usd <= booking_limits[input.subject.attributes.tier]
