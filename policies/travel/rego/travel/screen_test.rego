package policies.travel.screen_test

import data.policies.travel.screen

test_showing_a_screen_is_allowed if {
	screen.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "open_screen", "risk": "read"}}
}

test_copying_a_text_is_allowed if {
	screen.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "copy_to_clipboard", "risk": "read"}}
}

test_a_screen_that_became_a_write_is_not_allowed if {
	count(screen.allow) == 0 with input as {"tool": {"name": "open_screen", "risk": "write"}}
}

test_other_tools_are_not_concerned if {
	count(screen.allow) == 0 with input as {"tool": {"name": "search_hotels", "risk": "read"}}
}
