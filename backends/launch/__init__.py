"""Starting ranks, as threads or processes, and ending all of them."""
