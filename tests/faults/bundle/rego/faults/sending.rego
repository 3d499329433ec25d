# METADATA
# title: Only if none was sent
# description: One message for each subject; whatever may have been sent counts as sent.
# custom: {owner: faults, reason_codes: [POLICY_ALLOWED, SUPPRESSED_DUPLICATE]}
package policies.faults.sending

import future.keywords.not

allow contains "POLICY_ALLOWED" if input.tool.name == "send"

suppress contains "SUPPRESSED_DUPLICATE" if {
	input.tool.name == "send"
	not is_first
}

is_first if input.recent.same_tool.count == 0
