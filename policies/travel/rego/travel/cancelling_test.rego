package policies.travel.cancelling_test

import data.policies.travel.cancelling

test_a_cancellation_needs_a_person if {
	cancelling.confirm == {"CONFIRMATION_REQUIRED"} with input as {"tool": {"name": "cancel_booking"}}
}

test_other_tools_are_not_concerned if {
	count(cancelling.confirm) == 0 with input as {"tool": {"name": "book_hotel"}}
}
