# METADATA
# title: Searching and looking
# description: Whoever may read, may search hotels and look at itineraries; the gateway has checked the permissions.
# custom: {owner: travel-security, reason_codes: [USER_REQUEST_MATCHED_TOOL_SCOPE]}
package policies.travel.search

allow contains "USER_REQUEST_MATCHED_TOOL_SCOPE" if {
	input.tool.name in {"search_hotels", "get_itinerary"}
	input.tool.risk == "read"
}
