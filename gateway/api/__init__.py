"""The HTTP edge: routes, handlers, wire models and problems. No rules live here."""
