"""What `tailrace doctor` looks at: one module a neighbour, one `Check` a question."""
