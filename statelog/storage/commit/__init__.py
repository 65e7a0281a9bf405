"""Write transactions, and who makes them."""
