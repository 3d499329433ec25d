"""One small file a stage: a frozen value in; the next value, a refusal or an answer from the ledger out.

Stages never import each other, never log, and know neither HTTP nor SQL. Their order stands in `gateway.enforcer`.
"""
