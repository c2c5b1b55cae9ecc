"""The user's settings and credentials (floor 4): two documents of the home folder.

`service` is the credentials seam (that of the settings stands in `dsh/core/seams.py`). `file` is the row of
`settings.yaml` over `base` (layers, writes, watchers) and `sections` (pure data); `memory` is its stand-in for tests;
`offline` is what `dsh settings` uses without a run. `credentials` is the row of `.credentials.yaml`, `credential_store`
its content. Both keep their file through `document` (lock, smallest edit, atomic replacement) and their order through
`chain`. May write below the home folder only; no message holds text of a document.
"""
