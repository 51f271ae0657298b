"""What a person looks at after a run: `read` (files to records), `plots` (records to figures), `html` (one page).

It reads the files that `run/` writes and needs no torch; matplotlib and jinja2 load only with `plots` and `html`.
"""
