"""Trainers: tasks in, chunks of records out. No folder and no terminal here."""
