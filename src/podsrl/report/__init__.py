"""Reports of finished runs: `read` (files to records), `figures` (records to figures), `html` (one page).

Nothing here imports torch; matplotlib and jinja2 are imported only by `figures` and `html`.
"""
