# METADATA
# title: What happens on the traveller's own device
# description: Opening a screen or filling the clipboard changes nothing outside the traveller's app.
# custom: {owner: travel-security, reason_codes: [USER_REQUEST_MATCHED_TOOL_SCOPE]}
package policies.travel.client

allow contains "USER_REQUEST_MATCHED_TOOL_SCOPE" if {
	input.tool.name in {"open_screen", "copy_to_clipboard"}
	input.tool.risk == "read"
}
