"""The PostgreSQL side: claims, calls, budgets, approvals and the decision log. The only folder that imports asyncpg."""
