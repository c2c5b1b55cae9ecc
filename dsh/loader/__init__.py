"""From ``cordis.yml`` to mounted plugins and back: dialect, expressions, rows, patches, names, watching, code reload (floor 2)."""
