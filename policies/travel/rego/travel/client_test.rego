package policies.travel.client_test

import data.policies.travel.client

test_opening_a_screen_is_allowed if {
	client.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "open_screen", "risk": "read"}}
}

test_filling_the_clipboard_is_allowed if {
	client.allow == {"USER_REQUEST_MATCHED_TOOL_SCOPE"} with input as {"tool": {"name": "copy_to_clipboard", "risk": "read"}}
}

test_a_client_tool_that_became_a_write_is_not_allowed if {
	count(client.allow) == 0 with input as {"tool": {"name": "open_screen", "risk": "write"}}
}
