"""From `cordis.yml` to mounted plugins and back: dialect, expressions, rows, patches, watching, reload (floor 2)."""
