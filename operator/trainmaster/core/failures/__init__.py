"""Judge failures: their classes, budgets and the restart ledger."""
