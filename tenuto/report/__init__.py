"""Numbers and figures from the records of runs: statistics, cells, tables, learning curves."""
