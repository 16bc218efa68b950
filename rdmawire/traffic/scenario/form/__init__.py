"""How a scenario's file is read: text, trees, kinds of values, and the mistakes in them."""
