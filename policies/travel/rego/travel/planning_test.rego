package policies.travel.planning_test

import data.policies.travel.planning

test_planning_may_read if {
	count(planning.deny) == 0 with input as {"workflow": {"name": "trip_planning"}, "tool": {"name": "search_hotels", "risk": "read"}}
}

test_planning_never_books if {
	planning.deny == {"POLICY_DENIED"} with input as {"workflow": {"name": "trip_planning"}, "tool": {"name": "book_hotel", "risk": "irreversible"}}
}

test_planning_is_denied_where_the_risk_is_missing if {
	planning.deny == {"POLICY_DENIED"} with input as {"workflow": {"name": "trip_planning"}, "tool": {"name": "book_hotel"}}
}

test_booking_is_not_concerned if {
	count(planning.deny) == 0 with input as {"workflow": {"name": "trip_booking"}, "tool": {"name": "book_hotel", "risk": "irreversible"}}
}
