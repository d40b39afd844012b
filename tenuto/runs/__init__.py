"""A job in a folder: the request, the files, and how a run resumes. Nothing here prints to the terminal."""
