# METADATA
# title: Planning only looks
# description: >-
#   The planning assistant reads and never changes anything, whatever its workflow may come to expose. A tool whose
#   risk is not known counts as one that changes something.
# custom: {owner: travel-security, reason_codes: [POLICY_DENIED]}
package policies.travel.planning

import future.keywords.not

deny contains "POLICY_DENIED" if {
	input.workflow.name == "trip_planning"
	not input.tool.risk == "read"
}
