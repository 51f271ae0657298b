"""A run of an hour, looked at from outside: memory, files, threads, processes, and the size of its folder."""
