"""Reports of runs: `read` (files to records), `figures` (records to figures), `html` (one page); of runs that go on:
`follow` (what is new), `live` (the page, written again and again), `terminal` (text).

Nothing here imports torch; matplotlib and jinja2 are imported only by `figures`, `html` and `live`.
"""
