"""What may be tried next, and what it cost: the ladder, the rules, the ledger and reading it back."""
