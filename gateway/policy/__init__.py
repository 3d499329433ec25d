"""The policy engines (PDP) and everything about Rego: the combining library, its checks and its tests."""
