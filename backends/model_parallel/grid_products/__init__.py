"""Products of matrices that are cut into blocks, on ranks that form a grid of rows and columns."""
