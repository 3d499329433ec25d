# METADATA
# title: Everything but sending
# description: The fault tests are about what happens after a yes, so policy says yes; for one tool it wants a person's.
# custom: {owner: faults, reason_codes: [POLICY_ALLOWED, READ_ONLY_ALLOWED, CONFIRMATION_REQUIRED]}
package policies.faults.tools

allow contains "READ_ONLY_ALLOWED" if input.tool.name == "look"

allow contains "POLICY_ALLOWED" if input.tool.name in {"write_keyed", "write_probe", "write_never", "write_deaf", "spend", "perform"}

confirm contains "CONFIRMATION_REQUIRED" if input.tool.name == "write_agreed"
