"""A job in a folder: what was asked, what is kept, and how it goes on. No terminal here."""
