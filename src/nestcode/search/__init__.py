"""How a search scores and walks: scorers, list probing, exhaustive search, the plan of a query."""
