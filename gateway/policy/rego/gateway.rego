# METADATA
# title: The combining library
# description: >-
#   Turns the rule elements of all authors' packages into one decision: deny before suppress before confirm before
#   allow, and deny where nothing fired. It ships inside the gateway and cannot be replaced by a bundle. It gives the
#   same answer in OPA 1.17 or later and in the embedded engine.
package gateway

import future.keywords.not

import data.gateway.bundle

# Always defined, whatever the authors' rules say; an error in one of them fails the whole evaluation.
decision := object.union(_verdict, {
	"obligations": _obligations,
	"rules": _fired,
	"revision": bundle.revision,
})

# An element that cannot be read is a rule that was meant to fire. `invalid` is no known effect, so the gateway refuses
# the answer as POLICY_OUTPUT_INVALID instead of guessing.
_verdict := {"effect": "invalid", "reason_code": "POLICY_OUTPUT_INVALID", "policy": min(_malformed)} if {
	count(_malformed) > 0
} else := object.union(_chosen("deny"), {"effect": "deny"}) if {
	"deny" in _effects
} else := object.union(_chosen("suppress"), {"effect": "suppress"}) if {
	"suppress" in _effects
} else := object.union(_chosen("confirm"), {"effect": "allow", "reason_code": "APPROVAL_GRANTED"}) if {
	"confirm" in _effects
	_is_granted
} else := object.union(_chosen("confirm"), {"effect": "confirm"}) if {
	"confirm" in _effects
} else := object.union(_chosen("allow"), {"effect": "allow"}) if {
	"allow" in _effects
} else := {"effect": "deny", "reason_code": "DEFAULT_DENY", "policy": "gateway"}

# A person agreed to exactly this call, and the grant still holds.
_is_granted if input.approval.valid == true

_effects := {element.effect | some element in _elements}

# The first element of an effect by policy and reason code; of several equal ones the latest `until`.
_chosen(effect) := object.union({"policy": first[0], "reason_code": first[1]}, _until_part(times)) if {
	first := min({[element.policy, element.reason_code] | some element in _elements; element.effect == effect})
	times := {element.until |
		some element in _elements
		element.effect == effect
		element.policy == first[0]
		element.reason_code == first[1]
	}
}

_until_part(times) := {"until": max(times)} if count(times) > 0

_until_part(times) := {} if count(times) == 0

# What the gateway owes for an allowed call: everything that any allowing element asks for, confirmed ones included.
_obligations := {obligation |
	_verdict.effect == "allow"
	some element in _elements
	element.effect in {"allow", "confirm"}
	some obligation in element.obligations
}

_fired := {rule |
	some element in _elements
	rule := {"effect": element.effect, "policy": element.policy, "reason_code": element.reason_code}
}

# Every well-formed element in one form: {effect, policy, reason_code, obligations, until?}.
_elements contains _in_one_form(set_.effect, set_.policy, element) if {
	some set_ in _sets
	some element in set_.elements
	_is_well_formed(element)
}

# A function, so that OPA does not hold the second form against bundles that use only the first.
_in_one_form(effect, policy, element) := {"effect": effect, "policy": policy, "reason_code": element, "obligations": []} if {
	is_string(element)
}

_in_one_form(effect, policy, element) := object.union({"effect": effect, "policy": policy, "obligations": []}, element) if {
	is_object(element)
}

_sets contains set_ if {
	some set_ in bundle.rule_sets
	is_set(set_.elements)
}

# The policies with something unreadable in them: a rule that is no set, an element that is no code and no known object.
_malformed contains set_.policy if {
	some set_ in bundle.rule_sets
	not is_set(set_.elements)
}

_malformed contains set_.policy if {
	some set_ in _sets
	some element in set_.elements
	not _is_well_formed(element)
}

_is_well_formed(element) if is_string(element)

_is_well_formed(element) if {
	is_object(element)
	is_string(element.reason_code)
	count(object.keys(element) - {"reason_code", "policy", "until", "obligations"}) == 0
	is_string(object.get(element, "policy", ""))
	is_string(object.get(element, "until", ""))
	_are_obligations(object.get(element, "obligations", []))
}

_are_obligations(obligations) if {
	is_array(obligations)
	every obligation in obligations { is_object(obligation) }
}

_are_obligations(obligations) if {
	is_set(obligations)
	every obligation in obligations { is_object(obligation) }
}
