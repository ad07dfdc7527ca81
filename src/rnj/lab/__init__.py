"""What the book compares with and experiments on: the model uses none of it."""
