package policies.travel.search_test

import data.policies.travel.search

test_searching_is_allowed if {
	search.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "search_hotels", "risk": "read"}}
}

test_looking_at_an_itinerary_is_allowed if {
	search.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "get_itinerary", "risk": "read"}}
}

test_a_search_that_became_a_write_is_not_allowed if {
	count(search.allow) == 0 with input as {"tool": {"name": "search_hotels", "risk": "write"}}
}

test_other_tools_are_not_allowed if {
	count(search.allow) == 0 with input as {"tool": {"name": "book_hotel", "risk": "read"}}
}

test_nothing_is_allowed_without_facts if {
	count(search.allow) == 0 with input as {}
}
