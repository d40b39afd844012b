"""Numbers and figures from what runs left: statistics, cells, tables, learning curves."""
