"""What `gateway.policy.analysis` checks in authors' Rego, one subject a module."""
