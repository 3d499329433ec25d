# METADATA
# title: What the traveller's own app does
# description: Screens and the clipboard belong to the app in the traveller's hand; the gateway decides and the app performs.
# custom: {owner: travel-security, reason_codes: [USER_REQUEST_MATCHED_TOOL_SCOPE]}
package policies.travel.screen

allow contains "USER_REQUEST_MATCHED_TOOL_SCOPE" if {
	input.tool.name in {"open_screen", "copy_to_clipboard"}
	input.tool.risk == "read"
}
