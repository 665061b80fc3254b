"""Images are split by rows or tiles, and each rank fetches the halo around its own."""
