"""Experiments of the paper: which jobs make which table and figure."""
