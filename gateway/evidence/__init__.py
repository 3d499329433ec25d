"""What makes the decision log stand as evidence: the tree, signed checkpoints, sealed payloads, and the verifier."""
